"""What the stub answers: the wire shapes of common LLM APIs, and plain pages. Pure.

Sources of the shapes: OpenAI chat completions and responses, Anthropic messages, Gemini
generateContent, as their public API references describe them. The "model" is a rule: when a
request offers tools and holds no tool result yet, it asks for the first tool with the arguments
``TOOL_ARGUMENTS``; otherwise it answers with a fixed text that repeats the tool result. A prompt
may say otherwise (``stub.script``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stub.reply import Reply
from stub.script import Step, scripted, texts_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stub.wire import Request

__all__ = ["STUB_NOTICE", "TEXT", "TOOL_ARGUMENTS", "answer"]

STUB_NOTICE = "this is a test stub; no model and no real service is behind it"
TEXT = "hello from the stub"
TOOL_ARGUMENTS = {"a": 19, "b": 23}
_WORDS = 4  # a streamed text is cut into this many deltas


def _json(value: Any, status: int = 200) -> Reply:
    return Reply(status, "application/json", (json.dumps(value).encode(),), compressible=True)


def _sse(events: Iterable[Any], *, named: bool = False) -> Reply:
    parts = []
    for event in events:
        data = event if isinstance(event, str) else json.dumps(event)
        prefix = f"event: {event['type']}\n" if named else ""
        parts.append(f"{prefix}data: {data}\n\n".encode())
    return Reply(200, "text/event-stream", tuple(parts), streamed=True)


def _deltas(text: str) -> list[str]:
    step = max(1, -(-len(text) // _WORDS))
    return [text[i : i + step] for i in range(0, len(text), step)]


# OpenAI chat completions


def _chat_message(call: dict[str, Any]) -> dict[str, Any]:
    messages = call.get("messages", [])
    results = [m for m in messages if m.get("role") == "tool"]
    tools = call.get("tools") or []
    turn = sum(1 for m in messages if m.get("role") == "assistant")
    step = scripted(texts_of(messages), turn)
    if step is None and tools and not results:
        step = Step(tools[0]["function"]["name"], TOOL_ARGUMENTS)
    if step is not None and step.tool:
        function = {"name": step.tool, "arguments": json.dumps(step.arguments)}
        named = {"id": f"call_stub_{turn + 1}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [named]}
    if step is not None:
        return {"role": "assistant", "content": step.text}
    said = f"{TEXT}; the tool said {results[-1]['content']}" if results else TEXT
    return {"role": "assistant", "content": said}


def _chat_chunks(message: dict[str, Any], model: str) -> list[Any]:
    def piece(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {
            "id": "chatcmpl-stub",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }

    events: list[Any] = [piece({"role": "assistant", "content": ""})]
    if "tool_calls" in message:
        (tool,) = message["tool_calls"]
        arguments = tool["function"]["arguments"]
        first = {**tool, "index": 0, "function": {**tool["function"], "arguments": ""}}
        events.append(piece({"tool_calls": [first]}))
        events += [
            piece({"tool_calls": [{"index": 0, "function": {"arguments": part}}]})
            for part in _deltas(arguments)
        ]
        return [*events, piece({}, "tool_calls"), "[DONE]"]
    events += [piece({"content": part}) for part in _deltas(message["content"])]
    return [*events, piece({}, "stop"), "[DONE]"]


def _chat(call: dict[str, Any]) -> Reply:
    message, model = _chat_message(call), str(call.get("model", "stub"))
    if call.get("stream"):
        return _sse(_chat_chunks(message, model))
    finish = "tool_calls" if "tool_calls" in message else "stop"
    return _json(
        {
            "id": "chatcmpl-stub",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
    )


# OpenAI responses


def _responses_item(call: dict[str, Any]) -> dict[str, Any]:
    given = call.get("input")
    items = given if isinstance(given, list) else []
    results = [i for i in items if i.get("type") == "function_call_output"]
    tools = call.get("tools") or []
    turn = sum(1 for i in items if i.get("type") == "function_call")
    step = scripted(texts_of(items), turn)
    if step is None and tools and not results:
        step = Step(tools[0]["name"], TOOL_ARGUMENTS)
    if step is not None and step.tool:
        return {
            "type": "function_call",
            "id": f"fc_stub_{turn + 1}",
            "call_id": f"call_stub_{turn + 1}",
            "name": step.tool,
            "arguments": json.dumps(step.arguments),
            "status": "completed",
        }
    said = f"{TEXT}; the tool said {results[-1]['output']}" if results else TEXT
    said = step.text if step is not None else said
    content = {"type": "output_text", "text": said, "annotations": []}
    return {
        "type": "message",
        "id": "msg_stub",
        "status": "completed",
        "role": "assistant",
        "content": [content],
    }


def _responses_events(item: dict[str, Any], response: dict[str, Any]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {
            "type": "response.created",
            "response": {**response, "status": "in_progress", "output": []},
        },
        {"type": "response.output_item.added", "output_index": 0, "item": item},
    ]
    if item["type"] == "message":
        events += [
            {
                "type": "response.output_text.delta",
                "item_id": item["id"],
                "output_index": 0,
                "content_index": 0,
                "delta": part,
                "logprobs": [],
            }
            for part in _deltas(item["content"][0]["text"])
        ]
    events += [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _responses(call: dict[str, Any]) -> Reply:
    item = _responses_item(call)
    response = {
        "id": "resp_stub",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": str(call.get("model", "stub")),
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 2,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
    if call.get("stream"):
        return _sse(_responses_events(item, response), named=True)
    return _json(response)


# Anthropic messages


def _anthropic_block(call: dict[str, Any]) -> dict[str, Any]:
    results = [
        block
        for message in call.get("messages", [])
        if isinstance(message.get("content"), list)
        for block in message["content"]
        if block.get("type") == "tool_result"
    ]
    tools = call.get("tools") or []
    if tools and not results:
        return {
            "type": "tool_use",
            "id": "toolu_stub",
            "name": tools[0]["name"],
            "input": TOOL_ARGUMENTS,
        }
    said = f"{TEXT}; the tool said {_plain(results[-1]['content'])}" if results else TEXT
    return {"type": "text", "text": said}


def _plain(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _anthropic_events(message: dict[str, Any], block: dict[str, Any]) -> list[dict[str, Any]]:
    if block["type"] == "tool_use":
        opened = {**block, "input": {}}
        deltas = [
            {"type": "input_json_delta", "partial_json": part}
            for part in _deltas(json.dumps(block["input"]))
        ]
    else:
        opened = {**block, "text": ""}
        deltas = [{"type": "text_delta", "text": part} for part in _deltas(block["text"])]
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": opened},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]


def _anthropic(call: dict[str, Any]) -> Reply:
    block = _anthropic_block(call)
    message = {
        "id": "msg_stub",
        "type": "message",
        "role": "assistant",
        "model": str(call.get("model", "stub")),
        "content": [block],
        "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    if call.get("stream"):
        return _sse(_anthropic_events(message, block), named=True)
    return _json(message)


# Gemini


def _gemini(call: dict[str, Any], *, stream: bool) -> Reply:
    parts = [part for turn in call.get("contents", []) for part in turn.get("parts", [])]
    results = [part["functionResponse"] for part in parts if "functionResponse" in part]
    tools = call.get("tools") or []
    if tools and not results:
        name = tools[0]["functionDeclarations"][0]["name"]
        said: list[dict[str, Any]] = [{"functionCall": {"name": name, "args": TOOL_ARGUMENTS}}]
    else:
        suffix = f"; the tool said {json.dumps(results[-1]['response'])}" if results else ""
        said = [{"text": part} for part in _deltas(TEXT + suffix)]
    pieces = [
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": group},
                    "finishReason": "STOP",
                    "index": 0,
                }
            ],
            "usageMetadata": {
                "promptTokenCount": 1,
                "candidatesTokenCount": 1,
                "totalTokenCount": 2,
            },
            "modelVersion": "stub",
        }
        for group in ([[part] for part in said] if stream else [said])
    ]
    return _sse(pieces) if stream else _json(pieces[0])


# Plain pages


def pattern(count: int) -> bytes:
    """``count`` bytes that repeat only every 251, so that a lost or doubled piece shows."""
    block = bytes(range(251))
    return (block * (count // 251 + 1))[:count]


def _sized(path: str) -> Reply | None:
    word, _, number = path.lstrip("/").partition("/")
    if not number.isdigit():
        return None
    count = int(number)
    if word == "bytes":
        return Reply(200, "application/octet-stream", (pattern(count),))
    if word == "chunks":
        parts = tuple(pattern(100 + i) for i in range(count))
        return Reply(200, "application/octet-stream", parts, streamed=True)
    return _json({"status": count}, count) if word == "status" else None


def _page(request: Request, path: str) -> Reply:
    html = f"<!doctype html><title>stub</title><p>{STUB_NOTICE}</p>\n" * 8
    page = Reply(200, "text/html; charset=utf-8", (html.encode(),), compressible=True)
    fixed = {
        "/": page,
        "/page": page,
        "/echo": Reply(200, "application/octet-stream", (request.body,)),
        "/hold": Reply(200, "text/event-stream", (b"data: held\n\n",), streamed=True, hold=True),
        "/close": Reply(200, "text/plain", (b"closing\n",), close=True),
        "/v1/models": _json({"object": "list", "data": [{"id": "stub", "object": "model"}]}),
    }
    missing = {"error": {"message": f"the stub has no {path}", "type": "not_found"}}
    return fixed.get(path) or _sized(path) or _json(missing, 404)


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def answer(request: Request) -> Reply:
    """Answer one request, from its path and body alone."""
    path = request.target.partition("?")[0]
    if request.method == "POST":
        call = _object(request.body)
        if path.endswith("/chat/completions"):
            return _chat(call)
        if path.endswith("/responses"):
            return _responses(call)
        if path.endswith("/messages"):
            return _anthropic(call)
        if path.endswith((":generateContent", ":streamGenerateContent")):
            return _gemini(call, stream=path.endswith(":streamGenerateContent"))
    return _page(request, path)
