"""The openai SDK: plain, streamed, responses API, and a tool loop, streamed and not."""

import json
import sys

import openai

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "add two numbers",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        },
    },
}
client = openai.OpenAI()


def say(text: str) -> None:
    """Print one line."""
    sys.stdout.write(f"{text}\n")


def ask(messages: list) -> dict:
    """Return the assistant's message, read from a stream."""
    text, calls = "", {}
    for piece in client.chat.completions.create(
        model="m", messages=messages, tools=[TOOL], stream=True
    ):
        delta = piece.choices[0].delta
        text += delta.content or ""
        for part in delta.tool_calls or []:
            known = calls.setdefault(part.index, {"id": part.id, "name": "", "arguments": ""})
            known["name"] += part.function.name or ""
            known["arguments"] += part.function.arguments or ""
    message = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in calls.values()
        ]
    return message


hello = [{"role": "user", "content": "hi"}]
plain = client.chat.completions.create(model="m", messages=hello)
say(plain.choices[0].message.content)

stream = client.chat.completions.create(model="m", messages=hello, stream=True)
say("".join(piece.choices[0].delta.content or "" for piece in stream))

say(client.responses.create(model="m", input="hi").output_text)
deltas = [
    event.delta
    for event in client.responses.create(model="m", input="hi", stream=True)
    if event.type == "response.output_text.delta"
]
say(f"{len(deltas)} deltas: {''.join(deltas)}")

messages = list(hello)
while (message := ask(messages)).get("tool_calls"):
    messages.append(message)
    for call in message["tool_calls"]:
        given = json.loads(call["function"]["arguments"])
        messages.append(
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": str(given["a"] + given["b"]),
            }
        )
say(message["content"])
