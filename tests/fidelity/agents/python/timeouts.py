import asyncio

import httpx
from ask import NEWS, ask

TWIN = 0


async def main():
    out = []
    async with httpx.AsyncClient() as client:
        for number in range(2):
            try:
                await client.get(f"{NEWS}/silent/{number}", timeout=0.3)
            except httpx.TimeoutException as error:
                out.append(type(error).__name__)
        seen = 0
        async with client.stream("GET", f"{NEWS}/feed/40/5") as answer:
            async for line in answer.aiter_lines():
                seen += line.startswith("data: ")
                if seen == 5:
                    break
        out.append(seen + TWIN)
    return out


print(ask(f"{asyncio.run(main())}"))
