"""A server of the Model Context Protocol over streamable HTTP, with one tool, ``add``. Pure.

Source: the protocol's specification, revision 2025-06-18, "Streamable HTTP". Answers to requests
are event streams, so that a client's stream handling is used. It gives no session id, so a client
opens no stream beside its calls, and what it asks does not depend on how fast it is answered.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stub.reply import Reply

if TYPE_CHECKING:
    from stub.wire import Request

__all__ = ["answer"]

_TOOL = {
    "name": "add",
    "description": "add two numbers",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    },
}


def _result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "stub", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [_TOOL]}
    if method == "tools/call":
        given = params["arguments"]
        text = str(given["a"] + given["b"])
        return {"content": [{"type": "text", "text": text}], "isError": False}
    return {} if method == "ping" else None


def answer(request: Request) -> Reply:
    """Answer one request to the endpoint."""
    if request.method != "POST":
        return Reply(405 if request.method == "GET" else 200, "text/plain", (b"",))
    call = json.loads(request.body)
    if "id" not in call:
        return Reply(202, "text/plain", (b"",))
    said: dict[str, Any] = {"jsonrpc": "2.0", "id": call["id"]}
    result = _result(call["method"], call.get("params") or {})
    if result is None:
        said["error"] = {"code": -32601, "message": f"the stub has no {call['method']}"}
    else:
        said["result"] = result
    part = f"event: message\ndata: {json.dumps(said)}\n\n".encode()
    return Reply(200, "text/event-stream", (part,), streamed=True)
