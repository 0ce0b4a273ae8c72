// undici from its own package: one pool for a page, a JSON call, a stream, an upload in chunks.
import { Readable } from "node:stream";
import { Agent, request } from "undici";

const dispatcher = new Agent({ connections: 1, pipelining: 1 });
const chat = "https://api.openai.com/v1/chat/completions";
const headers = {
  authorization: `Bearer ${process.env.OPENAI_API_KEY}`,
  "content-type": "application/json",
};

function call(value) {
  return request(chat, { dispatcher, method: "POST", headers, body: JSON.stringify(value) });
}

const page = await request("https://news.example/page", { dispatcher });
console.log(`page ${(await page.body.text()).length}`);
const answer = await (await call({ model: "m", messages: [] })).body.json();
console.log(answer.choices[0].message.content);
let text = "";
for await (const part of (await call({ model: "m", messages: [], stream: true })).body) {
  text += part.toString();
}
console.log(`events ${text.split("\n").filter((line) => line.startsWith("data: ")).length}`);
const parts = Array.from({ length: 200 }, (_, i) => Buffer.alloc(1000, i));
const body = Readable.from(parts);
const echo = await request("https://news.example/echo", { dispatcher, method: "POST", body });
const back = Buffer.from(await echo.body.arrayBuffer());
console.log(`echo ${back.equals(Buffer.concat(parts))}`);
await dispatcher.close();
