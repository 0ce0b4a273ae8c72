"""An S3 bucket and a Bedrock model, as far as a signed request needs them. Pure but for the bucket.

The stub checks every signature itself, from the head it received: a mediator that changed a signed
field or the body is told 403. Sources: "Signature Version 4 signing process" and the event stream
encoding of the AWS documentation. The key is the example of that documentation, and opens nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import struct
import zlib
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote

from stub.reply import Reply

if TYPE_CHECKING:
    from stub.wire import Request

__all__ = ["ACCESS_KEY", "SECRET_KEY", "Bucket", "signature_of"]

ACCESS_KEY = "AKIDEXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # noqa: S105 - of the documentation
_FIELD = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>\w+)/(?P<scope>(?P<day>\d{8})/(?P<region>[\w-]+)/"
    r"(?P<service>[\w-]+)/aws4_request), SignedHeaders=(?P<signed>[\w;-]+), Signature=(?P<sign>\w+)"
)
_XML = "application/xml"
_TEXT = "hello from the stub"


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _canonical(request: Request, signed: list[str], *, twice: bool) -> str:
    path, _, query = request.target.partition("?")
    pairs = sorted(parse_qsl(query, keep_blank_values=True))
    fields = [f"{name}:{' '.join(request.field(name).split())}\n" for name in signed]
    payload = request.field("x-amz-content-sha256") or hashlib.sha256(request.body).hexdigest()
    return "\n".join(
        (
            request.method,
            quote(path if twice else unquote(path), safe="/-_.~"),
            "&".join(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in pairs),
            "".join(fields),
            ";".join(signed),
            payload,
        )
    )


def signature_of(request: Request, match: re.Match[str]) -> str:
    """Return the signature that ``request`` must carry, by the key above."""
    service = match["service"]
    canonical = _canonical(request, match["signed"].split(";"), twice=service != "s3")
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", request.field("x-amz-date"), match["scope"], digest))
    key = f"AWS4{SECRET_KEY}".encode()
    for part in (match["day"], match["region"], service, "aws4_request"):
        key = _mac(key, part)
    return _mac(key, text).hex()


def _signed(request: Request) -> bool:
    match = _FIELD.fullmatch(request.field("authorization"))
    if match is None or match["key"] != ACCESS_KEY or "host" not in match["signed"].split(";"):
        return False
    said = request.field("x-amz-content-sha256")
    if re.fullmatch("[0-9a-f]{64}", said) and said != hashlib.sha256(request.body).hexdigest():
        return False
    return hmac.compare_digest(match["sign"], signature_of(request, match))


def _unchunked(body: bytes) -> bytes:
    """Take the ``aws-chunked`` content coding away; its trailers are not looked at."""
    out = bytearray()
    while body:
        line, _, rest = body.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            break
        out += rest[:size]
        body = rest[size + 2 :]
    return bytes(out)


def _event(kind: str, value: Any) -> bytes:
    """One message of ``application/vnd.amazon.eventstream``."""
    fields = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    head = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(text))
        + text.encode()
        for name, text in fields.items()
    )  # fmt: skip
    body = json.dumps(value).encode()
    prelude = struct.pack("!II", 16 + len(head) + len(body), len(head))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + head + body
    return message + struct.pack("!I", zlib.crc32(message))


def _bedrock(request: Request) -> Reply:
    stop = {"stopReason": "end_turn"}
    usage = {"usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}}
    if request.target.endswith("/converse-stream"):
        words = [_TEXT[i : i + 5] for i in range(0, len(_TEXT), 5)]
        events = [
            _event("messageStart", {"role": "assistant"}),
            *(
                _event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": word}})
                for word in words
            ),
            _event("contentBlockStop", {"contentBlockIndex": 0}),
            _event("messageStop", stop),
            _event("metadata", {**usage, "metrics": {"latencyMs": 1}}),
        ]
        return Reply(200, "application/vnd.amazon.eventstream", tuple(events), streamed=True)
    message = {"role": "assistant", "content": [{"text": _TEXT}]}
    said = {"output": {"message": message}, **stop, **usage, "metrics": {"latencyMs": 1}}
    return Reply(200, "application/json", (json.dumps(said).encode(),))


class Bucket:
    """Objects by path, kept as long as the stub runs; and the model, which keeps nothing."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def answer(self, request: Request) -> Reply:
        """Answer one request to a host of AWS, signed or not."""
        if not _signed(request):
            text = "<Error><Code>SignatureDoesNotMatch</Code><Message>stub</Message></Error>"
            return Reply(403, _XML, (text.encode(),))
        if request.field("host").startswith("bedrock"):
            return _bedrock(request)
        path = request.target.partition("?")[0]
        if request.method == "PUT":
            coded = "aws-chunked" in request.field("content-encoding")
            self.objects[path] = _unchunked(request.body) if coded else request.body
            return Reply(200, _XML, (b"",))
        if path in self.objects:
            return Reply(200, "application/octet-stream", (self.objects[path],))
        if "list-type=2" in request.target:
            keys = [f"<Contents><Key>{key.rpartition('/')[2]}</Key></Contents>"
                    for key in self.objects]  # fmt: skip
            text = f"<ListBucketResult>{''.join(keys)}</ListBucketResult>"
            return Reply(200, _XML, (text.encode(),))
        return Reply(404, _XML, (b"<Error><Code>NoSuchKey</Code></Error>",))
