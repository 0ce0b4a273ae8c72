"""The stub is a witness, so it is tested itself: against clients that share no code with it."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from stub import STUB_NOTICE, Authority, Stub, answer
from stub.apis import TEXT, TOOL_ARGUMENTS, pattern
from stub.aws import Bucket
from stub.wire import Request, WireError, read_request

NAME = "api.example"


def connect(stub: Stub, name: str = NAME) -> http.client.HTTPSConnection:
    """Open a connection to the stub under a name, trusting only its CA."""
    context = ssl.create_default_context(cafile=stub.ca_file)
    connection = http.client.HTTPSConnection("127.0.0.1", stub.port, context=context)
    raw = socket.create_connection(("127.0.0.1", stub.port), 10)
    connection.sock = context.wrap_socket(raw, server_hostname=name)
    return connection


def ask(path: str, call: dict) -> dict:
    """Answer a call without a network, as the server would."""
    body = json.dumps(call).encode()
    reply = answer(Request("POST", path, (), b"", body))
    return json.loads(reply.parts[0])


def test_bytes_are_kept_exactly_and_the_connection_is_reused(tmp_path: Path):
    with Stub(tmp_path, (NAME,), log=tmp_path / "log") as stub:
        client = connect(stub)
        sent = [pattern(70_000), b"", b"x"]
        for body in sent:
            client.request("POST", "/echo", body=body, headers={"Host": NAME})
            response = client.getresponse()
            assert response.read() == body
            assert response.headers["X-Hark-Stub"] == STUB_NOTICE
        assert [seen.body for seen in stub.requests(NAME)] == sent
        assert [seen.response_body for seen in stub.requests()] == sent
        (connection,) = stub.connections(NAME)
        assert (connection.requests, connection.handshake) == (3, True)
        assert connection.received == sum(len(s.head) + len(s.body) for s in stub.requests())
    first = json.loads((tmp_path / "log").read_text().splitlines()[0])
    assert first["stub"] == STUB_NOTICE


def test_chunked_upload_and_chunked_answer(tmp_path: Path):
    with Stub(tmp_path, (NAME,)) as stub:
        client = connect(stub)
        pieces = [b"one", b"twenty" * 20, b"three"]
        client.request("POST", "/echo", body=iter(pieces), headers={"Host": NAME})
        assert client.getresponse().read() == b"".join(pieces)
        client.request("GET", "/chunks/3", headers={"Host": NAME})
        assert client.getresponse().read() == b"".join(pattern(100 + i) for i in range(3))
        assert stub.requests()[1].parts == (100, 101, 102)


def test_a_name_it_has_no_certificate_for_is_refused_and_counted(tmp_path: Path):
    with Stub(tmp_path, (NAME,)) as stub:
        with pytest.raises(ssl.SSLError):
            connect(stub, "other.example")
        (connection,) = stub.connections("other.example")
        assert not connection.handshake


def test_an_expired_certificate_is_refused_by_a_client(tmp_path: Path):
    authority = Authority(tmp_path / "ca")
    leaf = authority.leaf(NAME, expired=True)
    with (
        Stub(tmp_path, (NAME,), authority=authority, leaves={NAME: leaf}) as stub,
        pytest.raises(ssl.SSLCertVerificationError, match="expired"),
    ):
        connect(stub)


def test_tool_loop_of_each_api():
    chat_tools = [{"type": "function", "function": {"name": "add"}}]
    first = ask("/v1/chat/completions", {"messages": [], "tools": chat_tools})
    call = first["choices"][0]["message"]["tool_calls"][0]["function"]
    assert (call["name"], json.loads(call["arguments"])) == ("add", TOOL_ARGUMENTS)
    then = [{"role": "tool", "content": "42"}]
    second = ask("/v1/chat/completions", {"messages": then, "tools": chat_tools})
    assert second["choices"][0]["message"]["content"] == f"{TEXT}; the tool said 42"

    first = ask("/v1/messages", {"messages": [], "tools": [{"name": "add"}]})
    assert first["content"][0]["input"] == TOOL_ARGUMENTS
    assert first["stop_reason"] == "tool_use"

    path = "/v1beta/models/m:generateContent"
    declared = [{"functionDeclarations": [{"name": "add"}]}]
    first = ask(path, {"contents": [], "tools": declared})
    part = first["candidates"][0]["content"]["parts"][0]
    assert part["functionCall"] == {"name": "add", "args": TOOL_ARGUMENTS}


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/m:streamGenerateContent"]
)
def test_streams_are_event_streams(path: str):
    body = json.dumps({"messages": [], "contents": [], "input": "x", "stream": True}).encode()
    reply = answer(Request("POST", path, (), b"", body))
    assert (reply.content_type, reply.streamed) == ("text/event-stream", True)
    for part in reply.parts:
        data = part.decode().rpartition("data: ")[2].strip()
        assert data == "[DONE]" or json.loads(data)


def test_a_prompt_can_say_what_the_model_does():
    prompt = 'do it\nstub-call bash {"command": "ls"}\n  stub-say all done  \n'
    messages: list[dict] = [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
    first = ask("/v1/chat/completions", {"messages": messages})["choices"][0]["message"]
    call = first["tool_calls"][0]["function"]
    assert (call["name"], json.loads(call["arguments"])) == ("bash", {"command": "ls"})
    messages += [first, {"role": "tool", "content": 'stub-call no {"not": "from here"}'}]
    second = ask("/v1/chat/completions", {"messages": messages})["choices"][0]["message"]
    assert second["content"] == "all done"
    messages += [second, {"role": "user", "content": "more"}]
    third = ask("/v1/chat/completions", {"messages": messages})["choices"][0]["message"]
    assert third["content"].startswith(TEXT)  # the prompt says nothing about a third turn


def signed_request(body: bytes, **changed: str) -> Request:
    """The example request of AWS's documentation of Signature Version 4, "Create a string to sign".

    Its signature was computed there, not here; ``changed`` replaces fields.
    """
    fields = {
        "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        "host": "iam.amazonaws.com",
        "x-amz-date": "20150830T123600Z",
        "authorization": (
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
            "SignedHeaders=content-type;host;x-amz-date, Signature="
            "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        ),
    }
    target = "/?Action=ListUsers&Version=2010-05-08"
    return Request("GET", target, tuple({**fields, **changed}.items()), b"", body)


def test_signatures_are_those_of_the_documentation():
    bucket = Bucket()
    assert bucket.answer(signed_request(b"")).status == 404  # known, and asks for nothing here
    for changed in (
        signed_request(b"x"),
        signed_request(b"", host="s3.amazonaws.com"),
        signed_request(b"", **{"x-amz-date": "20150830T123601Z"}),
        signed_request(b"", authorization=""),
    ):
        assert bucket.answer(changed).status == 403


@pytest.mark.parametrize("step", [1, 2, 7, 10_000])
def test_requests_are_read_at_any_split(step: int):
    head = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire = head + b"3\r\nabc\r\n10;x=y\r\n0123456789abcdef\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"
    pieces = [wire[i : i + step] for i in range(0, len(wire), step)]
    kept = bytearray()

    def receive(_: int) -> bytes:
        return pieces.pop(0) if pieces else b""

    first = read_request(receive, kept, lambda: None)
    assert first is not None
    assert (first.head, first.body) == (head, b"abc0123456789abcdef")
    second = read_request(receive, kept, lambda: None)
    assert second is not None
    assert (second.method, second.body) == ("GET", b"")
    assert read_request(receive, kept, lambda: None) is None


@pytest.mark.parametrize(
    "wire", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"GET / HTTP/1.1\r\nHo"]
)
def test_what_is_no_request_ends_the_connection(wire: bytes):
    pieces = [wire]
    with pytest.raises(WireError):
        read_request(lambda _: pieces.pop(0) if pieces else b"", bytearray(), lambda: None)
