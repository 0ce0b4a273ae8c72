"""Python's urllib as anybody uses it: a page, a JSON call, an upload."""

import json
import os
import sys
import urllib.request

KEY = os.environ["OPENAI_API_KEY"]


def call(path: str, value: object) -> dict:
    """Post JSON with a bearer key."""
    request = urllib.request.Request(
        f"https://api.openai.com{path}",
        data=json.dumps(value).encode(),
        headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:  # noqa: S310
        return json.load(response)


with urllib.request.urlopen("https://news.example/page") as response:
    sys.stdout.write(f"page {len(response.read())}\n")
answer = call("/v1/chat/completions", {"model": "m", "messages": []})
sys.stdout.write(answer["choices"][0]["message"]["content"] + "\n")
upload = bytes(range(256)) * 1024
request = urllib.request.Request("https://news.example/echo", data=upload)
with urllib.request.urlopen(request) as response:  # noqa: S310
    sys.stdout.write(f"echo {response.read() == upload}\n")
