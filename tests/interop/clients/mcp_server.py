"""An MCP server over stdio whose tool makes a request of its own."""

import urllib.request

from mcp.server import MCPServer

server = MCPServer("pages")


@server.tool()
def page_size(path: str) -> int:
    """Say how long a page is."""
    with urllib.request.urlopen(f"https://news.example{path}") as page:
        return len(page.read())


server.run()
