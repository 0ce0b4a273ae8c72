"""Shapes of ids, in whole values and in every split of a stream; the map; rewriting."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_making import split

from hark import limits
from hark.replay.renaming import Renames, Replacer, Rewriter
from hark.replay.tokens import InputScanner, Masker, Ownership, Token

UUID = b"550e8400-e29b-41d4-a716-446655440000"
HEX = b"3f2a9c0d11be"

IDS = [
    (UUID, b"uuid"),
    (b"req_" + UUID, b"uuid"),
    (UUID.upper(), b"uuid"),
    (HEX, b"hex12"),
    (b"a" * 31 + b"1", b"hex32"),
    (b"01ARZ3NDEKTSV4RRFFQ69G5FAV", b"ulid"),
    (b"call_9fKq2LmP0xYz", b"id12"),
    (b"formdata-undici-012345678901", b"undici"),
]
WORDS = [
    b"gpt-4o-2024-08-06",
    b"claude-3-5-sonnet-20241022",
    b"Claude-3-5-Sonnet-20241022",
    b"msg_notification",
    b"/home/User/project2/src-files-Other3",
    b"getHTTPServerErrorException500Times",
    b"123456789012345678",
    b"1790000000000",
    b"deadbeefcafe",
    b"application/x-www-form-urlencoded",
    b"3f2a9c0d11beX",
    b"a" * 300,
]


@pytest.mark.parametrize(("text", "kind"), IDS)
def test_ids_are_masked_anywhere(text: bytes, kind: bytes) -> None:
    for value in (text, b'{"a": "' + text + b'"}', b"say " + text + b"\n", b"/x/" + text + b"?y"):
        masker = Masker(Ownership())
        masked = masker.mask(value)
        assert [token.kind for token in masker.tokens] == [kind]
        assert b"\0" + kind + b"#0\0" in masked
        assert masker.tokens[0].text in value


@pytest.mark.parametrize("text", WORDS)
def test_words_and_numbers_stay(text: bytes) -> None:
    masker = Masker(Ownership())
    assert masker.mask(text, whole=True) == text
    assert masker.mask(b"a " + text + b" b") == b"a " + text + b" b"
    assert not masker.tokens


def test_base64_only_as_a_whole_value() -> None:
    token = b"xK3mP9qLw2Zr8TnV5bYc1Q"
    assert Masker(Ownership()).mask(token, whole=True) == b"\0b6422#0\0"
    assert Masker(Ownership()).mask(b"see " + token, whole=True) == b"see " + token


def test_one_id_has_one_number_and_two_have_two() -> None:
    masker = Masker(Ownership())
    other = HEX[::-1]
    assert masker.mask(HEX + b" " + other + b" " + HEX) == (b"\0hex12#0\0 \0hex12#1\0 \0hex12#0\0")


def test_ids_of_inputs_stay_and_the_first_owner_keeps_it() -> None:
    ownership = Ownership()
    ownership.saw(HEX)
    assert Masker(ownership).mask(HEX) == HEX
    assert Masker(ownership).mask(UUID) == b"\0uuid#0\0"
    ownership.saw(UUID)  # an echo of what the agent said first
    assert Masker(ownership).mask(UUID) == b"\0uuid#0\0"


def test_nothing_is_renamed_once_inputs_are_forgotten() -> None:
    ownership = Ownership(most=1)
    ownership.saw(HEX)
    assert ownership.is_full
    assert Masker(ownership).mask(UUID) == UUID


@pytest.mark.parametrize("escape", [b"\\n", b"\\t", b'\\"', b"\\\\n", b"\\u0041", b""])
def test_an_escape_before_an_id_does_not_hide_it(escape: bytes) -> None:
    data = b'{"log": "id:' + escape + HEX + b'"}'
    for seed in range(12):
        ownership = Ownership()
        scanner = InputScanner(ownership)
        for part in split(data, seed):
            scanner.feed(part)
        scanner.finish()
        hidden = escape == b"\\\\n"  # an escaped backslash, then the letter n
        assert ownership.mint(HEX) is hidden


def test_a_nul_of_the_value_cannot_forge_a_mask() -> None:
    forged = b"\0hex12#0\0"
    assert Masker(Ownership()).mask(forged) != Masker(Ownership()).mask(HEX)


def test_times_only_when_they_are_real() -> None:
    text = b"at 2026-11-30T21:43:35.123Z, 21:43:35, 1790000000.5 and 1790000000123"
    assert Masker(Ownership()).mask(text) == text
    masker = Masker(Ownership(), times=True)
    assert masker.mask(text) == b"at \0time\0, \0time\0, \0time\0 and \0time\0"
    assert masker.times == 4


pieces = st.sampled_from(
    [
        UUID,
        HEX,
        b"call_9fKq2LmP0xYz",
        b"a",
        b"-",
        b"_",
        b" ",
        b'"',
        b"\x00",
        b"\n",
        b"f" * 250,
        b"21:43:35",
        b"2026-11-30",
        b"\\n",
        b"\\",
        b"\xff",
    ]
)
texts = st.lists(pieces, max_size=12).map(b"".join)


@given(texts, st.integers(0, 10_000))
@settings(max_examples=300)
def test_a_stream_masks_as_the_whole(text: bytes, seed: int) -> None:
    whole = Masker(Ownership(), times=True)
    expected = whole.mask(text)
    masker = Masker(Ownership(), times=True)
    stream = masker.stream()
    got = b"".join(stream.feed(part) for part in split(text, seed)) + stream.finish()
    assert got == expected
    assert masker.tokens == whole.tokens


def test_a_stream_holds_little() -> None:
    stream = Masker(Ownership()).stream()
    for _ in range(100):
        stream.feed(b"a" * 1000)
        assert len(stream._buffer._held) <= limits.TOKEN_RUN_MAX_BYTES


words = st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=5, unique=True)


@given(words, st.lists(st.sampled_from([b"a", b"b", b"ab", b"\0"]), max_size=20), st.data())
@settings(max_examples=300)
def test_replacing_in_a_stream_is_replacing_in_the_whole(
    found: list[bytes], parts: list[bytes], data: st.DataObject
) -> None:
    table = {word: b"<%d>" % i for i, word in enumerate(found)}
    text = b"".join(parts + data.draw(st.lists(st.sampled_from(found), max_size=6)))
    for seed in range(4):
        replacer = Replacer(table)
        got = b"".join(replacer.feed(part) for part in split(text, seed)) + replacer.finish()
        assert got == Replacer(table).replace(text)


def _tokens(*texts: bytes) -> list[Token]:
    return [Token(b"uuid", text) for text in texts]


def test_the_map_is_injective_both_ways() -> None:
    renames = Renames()
    assert renames.conflict(_tokens(b"a", b"b"), _tokens(b"x", b"y")) is None
    assert renames.conflict(_tokens(b"a", b"b"), _tokens(b"x", b"x")) == (b"b", b"x")
    assert renames.conflict(_tokens(b"a", b"a"), _tokens(b"x", b"y")) == (b"a", b"y")
    assert renames.add(_tokens(b"a", b"b"), _tokens(b"x", b"b")) == 1
    assert renames.conflict(_tokens(b"c"), _tokens(b"x")) == (b"c", b"x")
    assert renames.conflict(_tokens(b"a"), _tokens(b"a")) == (b"a", b"a")
    assert renames.conflict(_tokens(b"b"), _tokens(b"b")) is None


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), max_size=12))
def test_whatever_is_offered_the_map_stays_a_bijection(pairs: list[tuple[str, str]]) -> None:
    renames = Renames()
    for a, b in pairs:
        left, right = _tokens(a.encode()), _tokens(b.encode())
        if renames.conflict(left, right) is None:
            renames.add(left, right)
    assert len(set(renames._forward.values())) == len(renames._forward)
    assert {v: k for k, v in renames._forward.items()} == renames._backward


@pytest.mark.parametrize("seed", range(20))
def test_a_reply_is_rewritten_at_every_chunk_border(seed: int) -> None:
    old, new = str(uuid.uuid4()).encode(), str(uuid.uuid4()).encode()
    renames = Renames()
    renames.add(_tokens(old, b"keep" * 5), _tokens(new, b"keep" * 5))
    reply = b'data: {"id": "' + old + b'"}\n\n' + old[:20] + b" " + old + old
    rewriter = Rewriter(renames)
    got = b"".join(rewriter.feed(part) for part in split(reply, seed)) + rewriter.finish()
    assert got == reply.replace(old, new)
    assert len(got) == len(reply)


def test_an_id_mapped_during_a_reply_is_rewritten() -> None:
    renames = Renames()
    rewriter = Rewriter(renames)
    assert rewriter.feed(b"first ") == b"first "
    renames.add(_tokens(b"0" * 12), _tokens(b"1" * 12))
    assert rewriter.feed(b"0" * 12) == b"1" * 12
