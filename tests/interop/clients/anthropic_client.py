"""The anthropic SDK, synchronous and streamed, with a tool loop of each kind."""

import os
import sys

import anthropic

client = anthropic.Anthropic(
    api_key=os.environ["OPENAI_API_KEY"], base_url="https://api.openai.com"
)
ASK = {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}]}
TOOLS = [{"name": "add", "description": "add", "input_schema": {"type": "object"}}]

sys.stdout.write(client.messages.create(**ASK).content[0].text + "\n")
with client.messages.stream(**ASK) as stream:
    sys.stdout.write("".join(stream.text_stream) + "\n")


def ask(messages: list, *, stream: bool) -> anthropic.types.Message:
    """Return the model's answer, read at once or event by event."""
    call = {**ASK, "messages": messages, "tools": TOOLS}
    if not stream:
        return client.messages.create(**call)
    with client.messages.stream(**call) as events:
        return events.get_final_message()


for stream in (False, True):
    messages = list(ASK["messages"])
    while (answer := ask(messages, stream=stream)).stop_reason == "tool_use":
        call = answer.content[-1]
        said = {
            "type": "tool_result",
            "tool_use_id": call.id,
            "content": str(sum(call.input.values())),
        }
        messages.append({"role": "assistant", "content": answer.content})
        messages.append({"role": "user", "content": [said]})
    sys.stdout.write(answer.content[0].text + "\n")
