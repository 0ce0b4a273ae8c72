import asyncio

import httpx
from ask import NEWS, ask

TWIN = 0


async def main():
    async with httpx.AsyncClient() as client:
        answers = await asyncio.gather(*(client.get(f"{NEWS}/late/{i}") for i in range(10 + TWIN)))
    return [answer.json()["n"] for answer in answers]


print(ask(f"in the order of the calls: {asyncio.run(main())}"))
