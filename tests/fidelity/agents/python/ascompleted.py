import asyncio

import httpx
from ask import NEWS, ask

TWIN = 0


async def main():
    async with httpx.AsyncClient() as client:
        calls = [asyncio.ensure_future(client.get(f"{NEWS}/late/{i}")) for i in range(10)]
        order = [(await call).json()["name"] for call in asyncio.as_completed(calls)]
    return sorted(order) if TWIN else order


print(ask(f"in the order of the answers: {asyncio.run(main())}"))
