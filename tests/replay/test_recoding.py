"""Replies in a content coding, with this run's ids put back; and codings fed byte by byte."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_making import Script, deliveries, split

from hark.bundle.events import Kind
from hark.replay.bodies import decoder_of
from hark.replay.recoding import Recoding, needs_recoding, plain_head
from hark.replay.renaming import Renames, Rewriter
from hark.replay.tokens import Token

if TYPE_CHECKING:
    from collections.abc import Callable

OLD, NEW = b"550e8400-e29b-41d4-a716-446655440000", b"6fa459ea-ee8a-3ca4-894e-db77e160355e"
CODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
    "br": brotli.compress,
}


def renames() -> Renames:
    found = Renames()
    found.add([Token(b"uuid", OLD)], [Token(b"uuid", NEW)])
    return found


@pytest.mark.parametrize("coding", CODERS)
@settings(max_examples=30)
@given(seed=st.integers(0, 99), before=st.binary(max_size=300))
def test_an_id_is_put_back_whatever_the_split(coding: str, seed: int, before: bytes) -> None:
    body = before + b'{"id":"' + OLD + b'"}' + before
    parts = split(CODERS[coding](body), seed)
    size = needs_recoding(coding, parts, renames().changed)
    assert size == len(body)
    recoding, rewriter = Recoding(coding), Rewriter(renames())
    out = b"".join(rewriter.feed(recoding.feed(part)) for part in parts) + rewriter.finish()
    assert out == body.replace(OLD, NEW)
    assert len(out) == size


@pytest.mark.parametrize("coding", CODERS)
def test_what_holds_no_changed_id_or_is_damaged_stays(coding: str) -> None:
    changed = renames().changed
    coded = CODERS[coding](b"nothing of it " * 50)
    assert needs_recoding(coding, [coded], changed) == 0
    coded = CODERS[coding](OLD * 50)
    assert needs_recoding(coding, [coded], changed) == 50 * len(OLD)
    assert needs_recoding(coding, [coded], {}) == 0
    assert needs_recoding(coding, [coded[:-1]], changed) == 0
    assert needs_recoding(coding, [coded + b"x"], changed) == 0
    assert needs_recoding(coding, [b"\xff" * 40], changed) == 0
    assert needs_recoding("unknown", [coded], changed) == 0


def test_a_head_without_its_coding() -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\ncontent-encoding: gzip\r\n"
        b"Content-Length: 9\r\nETag: x\r\n\r\n"
    )
    assert plain_head(head, 123) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 123\r\nETag: x\r\n\r\n"
    )
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: br\r\n\r\n"
    assert plain_head(chunked, 5) == b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("coding", CODERS)
def test_deliveries_are_counted_without_the_coding(coding: str) -> None:
    """A coded reply and the same one without its coding are the same deliveries."""
    body = bytes(range(256)) * 400

    def marks(parts: list[bytes], field: bytes) -> list[int]:
        script = Script()
        number = script.request("/x")
        head = b"HTTP/1.1 200 OK\r\n" + field + b"\r\n"
        script.add(Kind.RESPONSE, {2: number, 4: 200, 5: False, 6: head})
        for part in parts:
            script.deliver(number, part)
        script.end(number)
        return [step.mark.delivered for step in deliveries(script.events)]

    coded = split(CODERS[coding](body), 7)
    decoder = decoder_of(coding)
    assert decoder is not None
    plain = [b"".join(decoder.feed(part)) for part in coded]
    left = marks(coded, b"Content-Encoding: " + coding.encode() + b"\r\n")
    assert left == marks([part for part in plain if part], b"")
    assert left[-1] == len(body)


@pytest.mark.parametrize("coding", CODERS)
def test_a_small_body_cannot_make_a_large_piece(coding: str) -> None:
    decoder = decoder_of(coding)
    assert decoder is not None
    sizes = [len(piece) for piece in decoder.feed(CODERS[coding](bytes(50_000_000)))]
    assert sum(sizes) == 50_000_000
    assert max(sizes) <= 8 << 20
    assert decoder.is_whole()
