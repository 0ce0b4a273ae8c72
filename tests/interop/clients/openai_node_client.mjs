// The openai SDK for Node: plain, streamed, and a tool loop.
import OpenAI from "openai";

const client = new OpenAI();
const tools = [
  {
    type: "function",
    function: {
      name: "add",
      description: "add two numbers",
      parameters: { type: "object", properties: { a: { type: "number" }, b: { type: "number" } } },
    },
  },
];
const messages = [{ role: "user", content: "hi" }];
const ask = (more) => client.chat.completions.create({ model: "m", messages, ...more });

console.log((await ask({})).choices[0].message.content);
let text = "";
for await (const piece of await ask({ stream: true })) {
  text += piece.choices[0].delta.content ?? "";
}
console.log(text);
const { message } = (await ask({ tools })).choices[0];
const given = JSON.parse(message.tool_calls[0].function.arguments);
messages.push(message);
messages.push({
  role: "tool",
  tool_call_id: message.tool_calls[0].id,
  content: String(given.a + given.b),
});
const stream = client.chat.completions.stream({ model: "m", messages, tools });
console.log(await stream.finalContent());
