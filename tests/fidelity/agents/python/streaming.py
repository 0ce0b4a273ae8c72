import json
import urllib.request

from ask import API, ask

TWIN = 0
say = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "count"}]}
request = urllib.request.Request(
    API + "/v1/chat/completions", json.dumps(say).encode(), {"Content-Type": "application/json"}
)
text, events = b"", 0
with urllib.request.urlopen(request) as answer:
    while byte := answer.read(1):
        text += byte
        events += text.endswith(b"\n\n")
print(events, ask(f"{events} events, {len(text) + TWIN} bytes"))
