"""httpx with one keep-alive client: JSON, gzip, and a stream read chunk by chunk."""

import os
import sys

import httpx

with httpx.Client(base_url="https://api.openai.com") as client:
    client.headers["Authorization"] = f"Bearer {os.environ['OPENAI_API_KEY']}"
    answer = client.post("/v1/chat/completions", json={"model": "m", "messages": []})
    sys.stdout.write(answer.json()["choices"][0]["message"]["content"] + "\n")
    call = {"model": "m", "messages": [], "stream": True}
    with client.stream("POST", "/v1/chat/completions", json=call) as stream:
        events = [line for line in stream.iter_lines() if line]
    sys.stdout.write(f"events {len(events)} {events[-1]}\n")
page = httpx.get("https://news.example/page")
sys.stdout.write(f"page {len(page.content)} {page.headers.get('content-encoding')}\n")
chunks = httpx.get("https://news.example/chunks/7")
sys.stdout.write(f"chunks {len(chunks.content)}\n")
