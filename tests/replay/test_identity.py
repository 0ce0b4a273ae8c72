"""Identity: every change of a request is caught, or is ignored by a rule that has a name."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_making import head, identify, split

from hark import limits
from hark.replay.bodies import MediaType, json_fields, parse_json
from hark.replay.identity import differences, ignored, operation_id, placeholder_table
from hark.replay.rules import Rules, Telemetry, Volatile
from hark.replay.tokens import Ownership

JSON = "Content-Type: application/json"
GZ = "Content-Encoding: gzip"
FORM = "Content-Type: application/x-www-form-urlencoded"


def multipart(boundary: str, *parts: tuple[str, bytes]) -> bytes:
    out = b""
    for disposition, content in parts:
        out += f"--{boundary}\r\nContent-Disposition: {disposition}\r\n\r\n".encode()
        out += content + b"\r\n"
    return out + f"--{boundary}--\r\n".encode()


def multi_head(boundary: str) -> bytes:
    return head("/up", f"Content-Type: multipart/form-data; boundary={boundary}")


# --- what is the same -----------------------------------------------------------------------------

BODY = b'{"model":"m","n":1.50,"messages":[{"role":"user","content":"hi \\u00e9"}]}'
RESHAPED = (
    b'{ "n": 1.50, "messages": [ {"content": "hi \xc3\xa9", "role": "user"} ], "model": "m" }'
)
GZIP_BODY = gzip.compress(b'{"a":1}', mtime=0)

SAME = [
    ((head("/x", JSON), BODY), (head("/x", JSON), RESHAPED), "body-form:json"),
    (
        (head("/x", FORM), b"b=2&a=1&a=3"),
        (head("/x", FORM), b"a=%31&a=3&b=2"),
        "body-form:form",
    ),
    ((head("/x?b=2&a=1"), b""), (head("/x?a=1&b=2"), b""), "target-form"),
    ((head("/%7eu/%2f?q=%c3"), b""), (head("/~u/%2F?q=%C3"), b""), "target-form"),
    ((head("/x", "Accept: a"), b""), (head("/x", "ACCEPT:  a "), b""), "header-form"),
    ((head("/x", "A: 1", "Accept: b"), b""), (head("/x", "Accept: b", "A: 1"), b""), "header-form"),
    ((head("/x", "traceparent: 1"), b""), (head("/x"), b""), "header:trace traceparent"),
    ((head("/x", "User-Agent: 1"), b""), (head("/x", "User-Agent: 2"), b""), "header:client"),
    ((head("/x", "X-Own: 1"), b""), (head("/x", "X-Own: 2"), b""), "header:unlisted x-own"),
    ((head("/x", "Connection: close"), b""), (head("/x"), b""), "header:hop connection"),
    (
        (head("/x", "Content-Type: text/plain; Charset=UTF-8; a=b"), b"t"),
        (head("/x", 'Content-Type: Text/Plain;a="b";charset=utf-8'), b"t"),
        "header-form",
    ),
    (
        (multi_head("aaa"), multipart("aaa", ('form-data; name="a"', b"1"))),
        (
            multi_head("b" * 32),
            b"preamble\r\n" + multipart("b" * 32, ('form-data; name="a"', b"1")),
        ),
        "body-form:multipart",
    ),
    (
        (head("/x", JSON, "Content-Encoding: gzip"), GZIP_BODY),
        (head("/x", JSON), b'{"a":1}'),
        "body-form content-encoding",
    ),
]


@pytest.mark.parametrize(("left", "right", "rule"), SAME)
def test_same_request_in_another_form(left: Any, right: Any, rule: str) -> None:
    a, b = identify(*left), identify(*right)
    assert a.strict != b.strict
    assert a.normalised == b.normalised
    assert a.renamed == b.renamed
    assert not differences(a, b)
    assert any(name.startswith(rule) for name in ignored(a, b)), ignored(a, b)
    assert not ignored(a, a)


# --- what is not ----------------------------------------------------------------------------------

OTHER = [
    ((head("/x"), b""), (head("/x", method="PUT"), b"")),
    ((head("/x"), b""), (head("/x", host="b.example"), b"")),
    ((head("/x"), b""), (head("/x?"), b"")),
    ((head("/x?a"), b""), (head("/x?a="), b"")),
    ((head("/x?a=1&a=2"), b""), (head("/x?a=2&a=1"), b"")),
    ((head("/x?a=1&a=2"), b""), (head("/x?a=1&a%231=2"), b"")),
    ((head("/a/../x"), b""), (head("/x"), b"")),
    ((head("/a%2Fb"), b""), (head("/a/b"), b"")),
    ((head("/x?a=+"), b""), (head("/x?a=%20"), b"")),
    ((head("/x", "Accept: a"), b""), (head("/x", "Accept: b"), b"")),
    ((head("/x", "Accept: a", "Accept: b"), b""), (head("/x", "Accept: b", "Accept: a"), b"")),
    ((head("/x", "X-Amz-Target: A"), b""), (head("/x", "X-Amz-Target: B"), b"")),
    ((head("/x", "mcp-x: 0"), b""), (head("/x", "mcp-x: 1"), b"")),
    ((head("/x", JSON), b'{"a":1}'), (head("/x", JSON), b'{"a":1.0}')),
    ((head("/x", JSON), b'{"a":9007199254740993}'), (head("/x", JSON), b'{"a":9007199254740992}')),
    ((head("/x", JSON), b'{"a":1}'), (head("/x", JSON), b'{"a":"1"}')),
    ((head("/x", JSON), b'{"a":[]}'), (head("/x", JSON), b'{"a":{}}')),
    ((head("/x", JSON), b'{"a":null}'), (head("/x", JSON), b"{}")),
    ((head("/x", JSON), b'{"a":"null"}'), (head("/x", JSON), b'{"a":null}')),
    ((head("/x", JSON), b'{"a":{"b":1}}'), (head("/x", JSON), b'{"a.b":1}')),
    ((head("/x", JSON), b'{"a":[1]}'), (head("/x", JSON), b'{"a[0]":1}')),
    ((head("/x", JSON), b'{"a":1,"a":2}'), (head("/x", JSON), b'{"a":2}')),
    ((head("/x", JSON), b'{"a":1,"a":2}'), (head("/x", JSON), b'{"a":2,"a":1}')),
    ((head("/x", JSON), b'{"a":NaN}'), (head("/x", JSON), b'{"a":null}')),
    ((head("/x", JSON), b'"\\ud800"'), (head("/x", JSON), b'"\\ufffd"')),
    ((head("/x", JSON), b'"\xff"'), (head("/x", JSON), b'"\\ufffd"')),
    ((head("/x", JSON), b"{}"), (head("/x", JSON), b"{}x")),
    ((head("/x", JSON), b"{}"), (head("/x", "Content-Type: text/plain"), b"{}")),
    ((head("/x", FORM), b"a=1"), (head("/x", FORM), b"a=1&")),
    ((head("/x", FORM), b"a=%ff"), (head("/x", FORM), b"a=%ed%b3%bf")),
    ((head("/x"), b"\x00"), (head("/x"), b"\x00\x00")),
    ((head("/x", "Authorization: Bearer a"), b""), (head("/x", "Authorization: Bearer b"), b"")),
    (
        (multi_head("q"), multipart("q", ("a", b"1"), ("b", b"2"))),
        (multi_head("q"), multipart("q", ("b", b"2"), ("a", b"1"))),
    ),
    (
        (multi_head("q"), multipart("q", ("a", b"1\r\n--qx"))),
        (multi_head("q"), multipart("q", ("a", b"1"))),
    ),
    ((head("/x", "Content-Encoding: br"), b"abc"), (head("/x"), b"abc")),
    (
        (head("/x", GZ, "Content-Encoding: br"), GZIP_BODY),
        (head("/x", GZ), GZIP_BODY),
    ),
    (
        (head("/x", JSON, "Content-Type: a/b"), b"{}"),
        (head("/x", JSON, "Content-Type: a/c"), b"{}"),
    ),
    ((head("/x", GZ), b"abc"), (head("/x", GZ), b"abd")),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), OTHER)
def test_another_request(left: Any, right: Any) -> None:
    a, b = identify(*left), identify(*right)
    assert a.normalised != b.normalised
    assert a.renamed != b.renamed
    assert differences(a, b)


# --- streams --------------------------------------------------------------------------------------

BIG = b'{"k":"' + b"v" * (limits.IDENTITY_PART_MAX_BYTES + 9) + b'"}'
LARGE_PART = random.Random(1).randbytes(limits.IDENTITY_PART_MAX_BYTES + 100)  # noqa: S311
STREAMS = [
    (head("/x", JSON), BODY),
    (head("/x", FORM), b"a=1&b=hark-placeholder-01-key"),
    (head("/x", "Content-Type: text/plain"), b"id 550e8400-e29b-41d4-a716-446655440000 " * 9),
    (multi_head("zz"), multipart("zz", ("a", b""), ("b", b"\r\n--z\r\n--zz"), ("c", b"--zz"))),
    (multi_head("zz"), multipart("zz", ("a", b"x"))[:-4]),
    (multi_head("zz"), b"--zz\r\n\r\nno head\r\n--zz  \r\nA: b\r\n\r\n--zz--"),
    (head("/x", JSON, "Content-Encoding: gzip"), gzip.compress(BODY, mtime=0)),
    (head("/x", JSON, "Content-Encoding: gzip"), gzip.compress(BODY, mtime=0)[:-3]),
    (head("/x", JSON, "Content-Encoding: gzip"), gzip.compress(BODY, mtime=0) + b"x"),
    (head("/x", JSON, "Content-Encoding: deflate"), zlib.compress(BODY)),
    (head("/x", JSON, "Content-Encoding: zstd"), zstandard.compress(BODY)),
    (head("/x", JSON, "Content-Encoding: zstd"), zstandard.compress(BODY)[:-1]),
    (head("/x", JSON, "Content-Encoding: zstd"), zstandard.compress(BODY) + b"x"),
]


@pytest.mark.parametrize("index", range(len(STREAMS)))
def test_any_split_gives_the_same_identity(index: int) -> None:
    raw, body = STREAMS[index]
    expected = identify(raw, body)
    for seed in range(25):
        assert identify(raw, *split(body, seed)) == expected


@pytest.mark.parametrize("seed", range(1, 6))
def test_large_bodies_are_hashed_as_they_come(seed: int) -> None:
    for raw, body in (
        (head("/x", "Content-Type: text/plain"), BIG),
        (head("/x", "Content-Type: application/octet-stream"), LARGE_PART),
        (multi_head("zz"), multipart("zz", ("a", LARGE_PART), ("b", b"1"))),
    ):
        whole = identify(raw, body)
        assert identify(raw, *split(body, seed)) == whole
        assert sum(len(item.value) for item in whole.fields) < 1000
        assert identify(raw, body.replace(b"v", b"w", 1), b"!").normalised != whole.normalised


def test_memory_of_a_large_upload_is_bounded() -> None:
    import tracemalloc  # noqa: PLC0415

    piece = random.Random(2).randbytes(1 << 20)  # noqa: S311 - repeatable
    tracemalloc.start()
    for kind in ("multipart/form-data; boundary=qq", "application/octet-stream"):
        opening = [b"--qq\r\nA: b\r\n\r\n"] if kind.startswith("m") else []
        identify(head("/x", f"Content-Type: {kind}"), *opening, *(piece for _ in range(24)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 << 20


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_bomb_is_compared_as_it_was_sent(coding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "IDENTITY_DECODED_MAX_BYTES", 1 << 20)
    data = bytes(3 << 20)
    bomb = gzip.compress(data, mtime=0) if coding == "gzip" else zstandard.compress(data)
    found = identify(head("/x", JSON, f"Content-Encoding: {coding}"), bomb)
    assert [item.value for item in found.fields if item.name == "body"] == ["bytes"]
    assert any(item.name == "header content-encoding" for item in found.fields)


def test_json_nested_deep_is_bytes() -> None:
    for depth in (limits.IDENTITY_JSON_DEPTH + 2, 100_000):
        found = identify(head("/x", JSON), b"[" * depth + b"]" * depth)
        assert [item.value for item in found.fields if item.name == "body"] == ["bytes"]


# --- the canonical form of JSON -------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def fields_of(value: Any, **how: Any) -> list[tuple[str, str]]:
    parsed = parse_json(json.dumps(value, **how).encode("utf-8", "surrogatepass"))
    return [(item.name, item.value) for item in json_fields(parsed)]


@given(values, st.randoms())
def test_json_is_canonical_and_idempotent(value: Any, rng: random.Random) -> None:
    def shuffled(x: Any) -> Any:
        if isinstance(x, dict):
            keys = list(x)
            rng.shuffle(keys)
            return {key: shuffled(x[key]) for key in keys}
        return [shuffled(item) for item in x] if isinstance(x, list) else x

    expected = fields_of(value)
    assert fields_of(shuffled(value), indent=rng.choice([None, 2])) == expected
    assert fields_of(json.loads(json.dumps(value, sort_keys=True))) == expected


@given(values, values)
@settings(max_examples=300)
def test_json_is_injective(a: Any, b: Any) -> None:
    same = json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
    assert (fields_of(a) == fields_of(b)) is same


@given(st.text(alphabet='ab;=" \\,%', max_size=20))
def test_media_types_never_fail_and_are_idempotent(text: str) -> None:
    once = MediaType.parse(text).canonical()
    assert MediaType.parse(once).canonical() == once


# --- the mutation test ----------------------------------------------------------------------------

RECORDED = [
    (
        head(
            "/v1/chat/completions?beta=true&tag=a&tag=b",
            "Accept: application/json",
            "Accept-Encoding: gzip, deflate",
            "Connection: keep-alive",
            "User-Agent: OpenAI/Python 3.57",
            "X-Stainless-Lang: python",
            "x-stainless-retry-count: 0",
            "Authorization: Bearer hark-placeholder-01-key",
            "OpenAI-Organization: org",
            "traceparent: 00-1-2-01",
            "X-Tenant: blue",
            "Content-Length: 71",
            JSON,
        ),
        json.dumps(
            {
                "model": "gpt-4o-2024-08-06",
                "temperature": 0.5,
                "stream": True,
                "stop": None,
                "messages": [{"role": "user", "content": "hi"}, {"role": "tool", "id": "call_1"}],
                "metadata": {},
            }
        ).encode(),
    ),
    (head("/login", FORM, "Cookie: a=b"), b"user=me&pass=hark-placeholder-01-key&x"),
    (
        multi_head("abc"),
        multipart(
            "abc",
            ('form-data; name="purpose"', b"assistants"),
            ('form-data; name="file"; filename="a.txt"', b"line one\r\nline two"),
        ),
    ),
    (
        head("/mcp", JSON, "Mcp-Session-Id: s1", "MCP-Protocol-Version: 2025-06-18"),
        b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t","arguments":{"a":1}}}',
    ),
    (head("/blob", "Content-Type: application/octet-stream", "Range: bytes=0-5"), b"\x00\x01\x02"),
]  # fmt: skip


def mutations(raw: bytes, body: bytes) -> list[tuple[str, bytes, bytes]]:
    """Return (what, head, body): each byte of the head changed, each JSON leaf, each body byte."""
    out = []
    for at, byte in enumerate(raw):
        if byte in b"\r\n":
            continue
        other = b"#" if byte != ord("#") else b"%"
        out.append((f"head byte {at}", raw[:at] + other + raw[at + 1 :], body))
    for at in range(len(body)):
        other = bytes([body[at] ^ 1])
        out.append((f"body byte {at}", raw, body[:at] + other + body[at + 1 :]))
        out.append((f"body without byte {at}", raw, body[:at] + body[at + 1 :]))
    lines = raw.split(b"\r\n")
    for i in range(1, len(lines) - 2):
        out.append((f"without {lines[i]!r}", b"\r\n".join(lines[:i] + lines[i + 1 :]), body))
        out.append((f"twice {lines[i]!r}", b"\r\n".join([*lines[: i + 1], *lines[i:]]), body))
    return out


@pytest.mark.parametrize("index", range(len(RECORDED)))
def test_every_mutation_is_caught_or_ignored_by_a_named_rule(index: int) -> None:
    raw, body = RECORDED[index]
    original = identify(raw, body)
    caught = 0
    rules: set[str] = set()
    changed = mutations(raw, body)
    for what, new_head, new_body in changed:
        mutant = identify(new_head, new_body)
        assert mutant.strict != original.strict, what
        if mutant.normalised != original.normalised:
            assert differences(original, mutant), what
            caught += 1
            continue
        named = ignored(original, mutant)
        assert named, what
        rules.update(named)
        if what.startswith("body"):
            assert all(name.startswith("body-form") for name in named), (what, named)
    assert caught > len(changed) // 4
    known = ("header:", "header-form", "body-form", "target-form")
    assert all(name.startswith(known) for name in rules), rules


def test_every_leaf_of_a_json_body_is_caught() -> None:
    raw, body = RECORDED[0]
    value = json.loads(body)
    original = identify(raw, body)

    def leaves(x: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        if isinstance(x, dict) and x:
            return [p for key in x for p in leaves(x[key], (*path, key))]
        if isinstance(x, list) and x:
            return [p for i, item in enumerate(x) for p in leaves(item, (*path, i))]
        return [path]

    for path in leaves(value):
        for new in ("other", 7, None, [], {}, False):
            changed = json.loads(body)
            at = changed
            for step in path[:-1]:
                at = at[step]
            if at[path[-1]] == new and type(at[path[-1]]) is type(new):
                continue
            at[path[-1]] = new
            found = identify(raw, json.dumps(changed).encode())
            assert found.normalised != original.normalised
            assert found.renamed != original.renamed
            (difference, *_) = differences(original, found)
            assert difference.field.startswith("body $")


# --- placeholders, ids, rules ---------------------------------------------------------------------


def test_placeholders_are_names_and_two_secrets_differ() -> None:
    raw = head("/x", "Authorization: Bearer hark-placeholder-01-key")
    found = identify(raw, b"")
    assert any(item.value == "Bearer {secret:key}" for item in found.fields)
    other = head("/x", "Authorization: Bearer hark-placeholder-02-key")
    table = placeholder_table([("key", b"hark-placeholder-02-key")])
    again = identify(other, b"", table=table)
    assert again == found  # another run's placeholder of the same secret
    assert identify(other, b"", table=placeholder_table([])).normalised != found.normalised
    typed = identify(head("/x", "Authorization: Bearer {secret:key}"), b"")
    assert typed.normalised != found.normalised
    basic = head("/x", "Authorization: Basic bWU6aGFyay1wbGFjZWhvbGRlci0wMS1rZXk=")
    values = [item.value for item in identify(basic, b"").fields]
    assert "Basic \0me:{secret:key}" in values


UUIDS = ("550e8400-e29b-41d4-a716-446655440000", "6fa459ea-ee8a-3ca4-894e-db77e160355e")


def test_minted_ids_are_equal_only_when_renamed() -> None:
    a, b = (
        identify(head("/x", JSON, f"session_id: {one}"), json.dumps({"k": one}).encode())
        for one in UUIDS
    )
    assert a.normalised != b.normalised
    assert a.renamed == b.renamed
    assert [token.text.decode() for token in b.tokens] == [UUIDS[1]]


def test_the_relation_between_ids_of_a_request_counts() -> None:
    one = json.dumps({"a": UUIDS[0], "b": UUIDS[0]}).encode()
    two = json.dumps({"a": UUIDS[0], "b": UUIDS[1]}).encode()
    assert identify(head("/x", JSON), one).renamed != identify(head("/x", JSON), two).renamed


def test_an_id_of_an_input_is_literal() -> None:
    found = []
    for one in UUIDS:
        ownership = Ownership()
        ownership.saw(one.encode())
        found.append(identify(head("/x", JSON), json.dumps([one]).encode(), ownership=ownership))
    assert found[0].renamed != found[1].renamed


def test_telemetry_compares_place_and_name_only() -> None:
    rules = Rules(telemetry=(Telemetry("log", "api.example", "/log/*"),))
    a = identify(head("/log/1", JSON), b"[1]", rules=rules)
    b = identify(head("/log/1", JSON, "Accept: x"), b"[2]", rules=rules)
    assert (a.telemetry, a.normalised) == ("log", b.normalised)
    assert "telemetry:log" in ignored(a, b)
    assert a.normalised != identify(head("/log/2", JSON), b"[1]", rules=rules).normalised
    assert identify(head("/logs", JSON), b"[1]", rules=rules).telemetry is None


def test_a_volatile_value_is_named_and_counted() -> None:
    chunk = Volatile("chunk", "api.example", "/x", "body $.t", after="Chunk ID: ", length=6)
    seed = Volatile("seed", "api.example", "*", "body $.m[*]")
    rules = Rules(volatile=(chunk, seed))
    a = identify(head("/x", JSON), b'{"t":"Chunk ID: bff79e\\nok","m":[1,2]}', rules=rules)
    b = identify(head("/x", JSON), b'{"t":"Chunk ID: 000000\\nok","m":[3,4]}', rules=rules)
    assert a.normalised == b.normalised
    assert a.volatile == ("chunk", "seed", "seed")
    assert {"volatile:chunk", "volatile:seed"} <= set(ignored(a, b))
    c = identify(head("/x", JSON), b'{"t":"Chunk ID: zzzzzz\\nok","m":[1,2]}', rules=rules)
    assert c.normalised != a.normalised


def test_operation_ids_name_an_occurrence() -> None:
    found = identify(head("/x"), b"")
    assert len({operation_id(found, n) for n in range(3)}) == 3
    assert operation_id(found, 1) == operation_id(identify(head("/x"), b""), 1)


@given(st.binary(max_size=200), st.binary(max_size=60))
def test_no_bytes_make_it_fail(raw: bytes, body: bytes) -> None:
    a = identify(raw, body)
    assert a == identify(raw, *split(body, 3))
    assert identify(raw, body + b"x").strict != a.strict
