"""The aiohttp library as anybody uses it: calls at once, a stream, an upload in chunks."""

import asyncio
import os
import sys

import aiohttp

HEADERS = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
CHAT = "https://api.openai.com/v1/chat/completions"
CALL = {"model": "m", "messages": []}


async def upload() -> object:
    """Give the parts of a chunked body."""
    for i in range(200):
        yield bytes([i]) * 1000


async def main() -> None:
    """Make all calls in one session."""
    async with aiohttp.ClientSession() as session:
        async with session.get("https://news.example/page") as page:
            sys.stdout.write(f"page {len(await page.read())}\n")
        async with session.post(CHAT, json=CALL, headers=HEADERS) as answer:
            said = await answer.json()
        sys.stdout.write(said["choices"][0]["message"]["content"] + "\n")
        async with session.post(CHAT, json={**CALL, "stream": True}, headers=HEADERS) as stream:
            lines = [line async for line in stream.content if line.startswith(b"data: ")]
        sys.stdout.write(f"events {len(lines)} {lines[-1].decode()}")
        async with session.post("https://news.example/echo", data=upload()) as echo:
            same = await echo.read() == b"".join(bytes([i]) * 1000 for i in range(200))
        sys.stdout.write(f"echo {same}\n")


asyncio.run(main())
