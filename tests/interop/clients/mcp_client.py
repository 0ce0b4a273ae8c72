"""The mcp SDK's client with two servers: one over streamable HTTP, one over stdio, started here."""

import asyncio
import sys
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

SERVER = StdioServerParameters(
    command=sys.executable, args=[str(Path(__file__).with_name("mcp_server.py"))]
)


async def use(name: str, read: object, write: object, tool: str, arguments: dict) -> None:
    """Ask one server for its tools and call one."""
    async with ClientSession(read, write) as session:
        await session.initialize()
        tools = [one.name for one in (await session.list_tools()).tools]
        said = (await session.call_tool(tool, arguments)).content[0].text
        sys.stdout.write(f"{name} {tools} {said}\n")


async def main() -> None:
    """Use both servers."""
    async with streamable_http_client("https://mcp.example/mcp") as (read, write, *_):
        await use("http", read, write, "add", {"a": 19, "b": 23})
    async with stdio_client(SERVER) as (read, write):
        await use("stdio", read, write, "page_size", {"path": "/page"})


asyncio.run(main())
