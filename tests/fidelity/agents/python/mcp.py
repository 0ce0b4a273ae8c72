from ask import NEWS, ask, body

TWIN = 0
number = 0


def rpc(method, **params):
    global number
    number += 1
    say = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return body(
        NEWS + "/mcp", say, Content_Type="application/json", Mcp_Protocol_Version="2025-06-18"
    )["result"]


rpc(
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={},
    clientInfo={"name": "a", "version": "1"},
)
tools = rpc("tools/list")["tools"]
found = rpc("tools/call", name=tools[0]["name"], arguments={"a": 19, "b": 23 + TWIN})
print(ask("the tool said " + found["content"][0]["text"]))
