import asyncio

import httpx
from ask import NEWS, ask

TWIN = 0


async def read(client, seen):
    async with client.stream("GET", f"{NEWS}/feed/400/5") as answer:
        async for line in answer.aiter_lines():
            seen.append(line)


async def main():
    seen = []
    async with httpx.AsyncClient() as client:
        try:
            await asyncio.wait_for(read(client, seen), 0.2)
        except TimeoutError:
            pass
    return len(seen) + TWIN


print(ask(f"{asyncio.run(main())} lines in time"))
