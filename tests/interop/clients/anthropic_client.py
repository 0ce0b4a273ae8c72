"""The anthropic SDK, synchronous and streamed, with a tool loop."""

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
first = client.messages.create(**ASK, tools=TOOLS)
call = first.content[-1]
result = {"type": "tool_result", "tool_use_id": call.id, "content": str(sum(call.input.values()))}
loop = [*ASK["messages"], {"role": "assistant", "content": first.content}]
loop.append({"role": "user", "content": [result]})
last = client.messages.create(**{**ASK, "messages": loop}, tools=TOOLS)
sys.stdout.write(last.content[0].text + "\n")
