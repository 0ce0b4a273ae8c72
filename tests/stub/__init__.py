"""A loopback stub of the services agents talk to: real TLS, common LLM APIs, plain pages.

It says that it is a stub in the first line of its log and in a header of every response. No model
is behind it. It is also the tests' external witness: it keeps the bytes it received and sent, per
connection and per request, so that a recording can be compared with what really arrived.
"""

from stub.apis import STUB_NOTICE, answer
from stub.authority import Authority, Leaf
from stub.reply import Reply
from stub.server import ConnectionSeen, RequestSeen, Stub

__all__ = [
    "STUB_NOTICE",
    "Authority",
    "ConnectionSeen",
    "Leaf",
    "Reply",
    "RequestSeen",
    "Stub",
    "answer",
]
