"""The requests library as anybody uses it: a session, a stream, an upload in chunks."""

import os
import sys

import requests

HEADERS = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
CHAT = "https://api.openai.com/v1/chat/completions"
CALL = {"model": "m", "messages": []}

with requests.Session() as session:
    page = session.get("https://news.example/page", timeout=30)
    answer = session.post(CHAT, json=CALL, headers=HEADERS, timeout=30).json()
    with session.post(
        CHAT, json={**CALL, "stream": True}, headers=HEADERS, stream=True, timeout=30
    ) as stream:
        events = [line for line in stream.iter_lines() if line.startswith(b"data: ")]
    parts = [bytes([i]) * 1000 for i in range(200)]
    echo = session.post("https://news.example/echo", data=iter(parts), timeout=30)
sys.stdout.write(f"page {len(page.content)}\n{answer['choices'][0]['message']['content']}\n")
sys.stdout.write(f"events {len(events)} {events[-1].decode()}\n")
sys.stdout.write(f"echo {echo.content == b''.join(parts)}\n")
