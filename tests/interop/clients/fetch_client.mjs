// Node's own fetch: a page, a JSON call, a stream read chunk by chunk.
const key = process.env.OPENAI_API_KEY;

async function call(value) {
  return fetch("https://api.openai.com/v1/chat/completions", {
    method: "POST",
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: JSON.stringify(value),
  });
}

const page = await fetch("https://news.example/page");
console.log(`page ${(await page.text()).length}`);
const answer = await (await call({ model: "m", messages: [] })).json();
console.log(answer.choices[0].message.content);
let events = 0;
let text = "";
for await (const chunk of (await call({ model: "m", messages: [], stream: true })).body) {
  text += new TextDecoder().decode(chunk);
}
for (const line of text.split("\n")) {
  events += line.startsWith("data: ") ? 1 : 0;
}
console.log(`events ${events}`);
