"""What an action is: the one canonicaliser for look-up, digest, gate and operation ids.

Pure. The authority is docs/spec/replay.md, "Identity". Rules: a difference either changes the
normalised hash or is named by ``ignored``; nothing in between. Every hash is keyed, so none is
mistaken for another. Any split of a body's stream gives the same identity.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from blake3 import blake3

from hark.replay.bodies import Body, Field, MediaType, numbered, quoted, text_of
from hark.replay.renaming import Replacer
from hark.replay.rules import BUILTIN, Rules, header_rule
from hark.replay.tokens import Masker, Ownership, Token

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "ActionKind",
    "Canonicaliser",
    "Difference",
    "Identity",
    "differences",
    "framed",
    "ignored",
    "keyed",
    "operation_id",
    "placeholder_table",
    "plain_identity",
]

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_TRIPLET = re.compile(rb"%([0-9A-Fa-f]{2})")


class ActionKind(IntEnum):
    """Kinds of actions; the number is hashed and keeps its meaning for ever."""

    REQUEST = 1
    TRAILERS = 2
    EXEC = 3
    REFUSED = 4
    QUESTION = 5
    OUTPUT = 6
    EXIT = 7
    WRITES = 8


def keyed(name: str, data: bytes) -> bytes:
    """Return KH(K_name, data): 32 bytes."""
    return blake3(data, key=_key(name)).digest()


_KEYS: dict[str, bytes] = {}


def _key(name: str) -> bytes:
    if name not in _KEYS:
        _KEYS[name] = blake3(b"hark/replay/1/" + name.encode()).digest()
    return _KEYS[name]


def framed(*parts: bytes) -> bytes:
    """Return s(part) for each part: u32 length and bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Identity:
    """An action's three hashes, its fields, and what was left out under which rule.

    ``dropped``: (name, value, rule) of header fields. ``forms``: (rule, hash of the bytes as they
    were), to tell which normalisation two equal identities needed. ``tokens``: minted ids in order.
    """

    kind: ActionKind
    title: str
    strict: bytes
    normalised: bytes
    renamed: bytes
    name: bytes
    fields: tuple[Field, ...]
    tokens: tuple[Token, ...] = ()
    dropped: tuple[tuple[str, str, str], ...] = ()
    forms: tuple[tuple[str, bytes], ...] = ()
    telemetry: str | None = None
    volatile: tuple[str, ...] = ()
    times: int = 0

    def light(self) -> Identity:
        """Return it without the fields, which can be large."""
        return replace(self, fields=())


def placeholder_table(placeholders: Iterable[tuple[str, bytes]]) -> dict[bytes, bytes]:
    """Return what stands for each placeholder: (secret name, placeholder) to ``{secret:NAME}``.

    The same characters written by the agent become others, so they do not stand for a secret.
    """
    table = {text: f"{{secret:{name}}}".encode() for name, text in placeholders if text}
    return {b"{secret:": b"{secret::", **table}


@dataclass(slots=True)
class _Sealer:
    """Hashes fields at the two levels."""

    masker: Masker

    def seal(self, kind: ActionKind, fields: Sequence[Field]) -> tuple[bytes, bytes]:
        plain, masked = bytearray([kind]), bytearray([kind])
        for item in fields:
            name = _raw(item.name)
            value = _raw(item.value)
            plain += framed(name, value)
            cover = item.masked if item.masked is not None else self._mask(item, value)
            masked += framed(self.masker.mask(name), cover)
        return keyed("normalised", bytes(plain)), keyed("renamed", bytes(masked))

    def _mask(self, item: Field, value: bytes) -> bytes:
        if item.whole and value[:1] in (b'"', b"="):
            return value[:1] + self.masker.mask(value[1:], whole=True)
        return self.masker.mask(value, whole=item.whole)


def plain_identity(
    kind: ActionKind,
    title: str,
    fields: Sequence[Field],
    ownership: Ownership,
    rules: Rules,
    *,
    sent: Sequence[Field] = (),
    volatile: Sequence[str] = (),
) -> Identity:
    """Return the identity of an action that has no looser form than its fields.

    ``volatile``: names of the rules that were used on ``fields``; then ``sent`` is without them.
    """
    masker = Masker(ownership, times=rules.real_times)
    normalised, renamed = _Sealer(masker).seal(kind, fields)
    strict = normalised
    if volatile:
        strict = _Sealer(Masker(ownership)).seal(kind, sent)[0]
    return Identity(
        kind=kind,
        title=title,
        strict=strict,
        normalised=normalised,
        renamed=renamed,
        name=renamed,
        fields=tuple(fields),
        tokens=tuple(masker.tokens),
        volatile=tuple(sorted(volatile)),
        times=masker.times,
    )


def operation_id(identity: Identity, occurrence: int) -> bytes:
    """Return 16 bytes that name an operation in a recording, its replays and forks."""
    return keyed("operation", identity.renamed + occurrence.to_bytes(4, "big"))[:16]


# --- requests -------------------------------------------------------------------------------------


def _percent(raw: bytes) -> bytes:
    """RFC 3986 section 6.2.2: triplets in upper case, those of unreserved characters decoded."""

    def one(match: re.Match[bytes]) -> bytes:
        value = int(match.group(1), 16)
        return bytes([value]) if value in _UNRESERVED else match.group().upper()

    return _TRIPLET.sub(one, raw)


def _target_fields(target: bytes) -> list[Field]:
    path, question, query = target.partition(b"?")
    fields = [Field("path", text_of(_percent(path)))]
    if question and not query:
        fields.append(Field("query", ""))
    elif question:
        pairs = []
        for part in query.split(b"&"):
            name, eq, value = part.partition(b"=")
            pairs.append((text_of(_percent(name)), text_of(eq + _percent(value))))
        fields += numbered(sorted(pairs, key=lambda pair: pair[0]), "query")
    return fields


def _basic(value: str, table: Replacer) -> str:
    """Decode ``Basic`` credentials, so that a placeholder inside is seen."""
    scheme, space, rest = value.partition(" ")
    if scheme.lower() != "basic" or not space:
        return value
    try:
        raw = base64.b64decode(rest.strip(), validate=True)
    except (binascii.Error, ValueError):
        return value
    return f"Basic \0{text_of(table.replace(raw))}"  # no field value holds a NUL


def _split_head(head: bytes) -> tuple[bytes, bytes, list[tuple[str, str, bytes]]]:
    """Return method, target and (lower-case name, value, line) per field, in order."""
    first, _, rest = head.partition(b"\r\n")
    method, _, target = first.partition(b" ")
    target = target.rpartition(b" ")[0] or target
    lines = []
    for line in rest.split(b"\r\n"):
        if line:
            name, _, value = line.partition(b":")
            lines.append((text_of(name).strip().lower(), text_of(value).strip(" \t"), line))
    return method, target, lines


class Canonicaliser:
    """Makes the identity of one request: the head at once, the body as it comes, then ``finish``.

    ``head`` is the head as it was sent, placeholders and all; ``host`` is the policy's name or None
    (then the Host field counts); ``placeholders`` is ``placeholder_table``'s value.
    """

    def __init__(
        self,
        head: bytes,
        *,
        host: str | None,
        port: int | None,
        tls: bool,
        placeholders: Mapping[bytes, bytes],
        ownership: Ownership,
        rules: Rules = BUILTIN,
    ) -> None:
        self._rules = rules
        self._ownership = ownership
        self._replacer = Replacer(placeholders)
        head = self._replacer.replace(head)
        method, self._target, self._lines = _split_head(head)
        self.method = text_of(method)
        self.host, port = _authority(host, port, self._lines, tls=tls)
        self._place = [
            Field("method", self.method),
            Field("scheme", "https" if tls else "http"),
            Field("host", self.host),
            Field("port", str(port)),
        ]
        self._strict = blake3(key=_key("strict"))
        self._strict.update(framed(*(_raw(item.value) for item in self._place), head))
        self._body_hash = blake3()
        media = MediaType.parse(self._value("content-type"))
        codings = [value for name, value, _ in self._lines if name == "content-encoding"]
        coding = ", ".join(codings).lower()
        self._body = Body(media, coding, self._masker)
        self._target_fields = _target_fields(self._target)
        self.path = self._target_fields[0].value
        self.telemetry = rules.telemetry_of(self.method, self.host, self.path)
        self.name = self._name()

    @property
    def title(self) -> str:
        """Method, host with an unusual port, and path, for a person."""
        usual = (("https", "443"), ("http", "80"))
        scheme, port = self._place[1].value, self._place[3].value
        where = self.host if (scheme, port) in usual else f"{self.host}:{port}"
        return f"{self.method} {where}{self.path}"

    @property
    def has_body(self) -> bool:
        """Whether the head announces a body (RFC 9112 section 6)."""
        if self._value("transfer-encoding"):
            return True
        return self._value("content-length").strip() not in ("", "0")

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body, transfer coding removed."""
        self._take(self._replacer.feed(data))

    def finish(self, *, refused: str = "", is_whole: bool = True) -> Identity:
        """Return the identity.

        ``refused``: why the policy refused it; ``is_whole``: false when the agent left before the
        end of its body. Both make another action of it.
        """
        self._take(self._replacer.finish())
        body = self._body.finish()
        headers, dropped = self._headers(was_decoded=body.was_decoded)
        whole = [*self._place, *self._target_fields, *headers, *body.fields]
        if self.telemetry:
            whole = [*self._place, self._target_fields[0], Field("telemetry", self.telemetry)]
        ending = framed(refused.encode(), b"" if is_whole else b"cut")
        whole += [Field("refused", refused)] if refused else []
        whole += [] if is_whole else [Field("body end", "missing")]
        sealer = _Sealer(self._masker())
        rules = self._rules.of_request(self.host, self.path)
        fields = [_replaced(item, rules.apply(item.name, item.value)) for item in whole]
        normalised, renamed = sealer.seal(ActionKind.REQUEST, fields)
        return Identity(
            kind=ActionKind.REQUEST,
            title=self.title,
            strict=keyed("sent", self._strict.digest() + ending),
            normalised=normalised,
            renamed=renamed,
            name=self.name,
            fields=tuple(fields),
            tokens=() if self.telemetry else (*body.tokens, *sealer.masker.tokens),
            dropped=tuple(dropped),
            forms=self._forms(body.form),
            telemetry=self.telemetry,
            volatile=tuple(sorted(rules.used)),
            times=sealer.masker.times,
        )

    def _take(self, data: bytes) -> None:
        if data:
            self._strict.update(data)
            self._body_hash.update(data)
            self._body.feed(data)

    def _masker(self) -> Masker:
        return Masker(self._ownership, times=self._rules.real_times)

    def _value(self, name: str) -> str:
        return next((value for key, value, _ in self._lines if key == name), "")

    def _name(self) -> bytes:
        """Hash the place, for the marks of deliveries: known before the body is."""
        masker = self._masker()
        values = [item.value for item in (*self._place, self._target_fields[0])]
        parts = [masker.mask(_raw(value)) for value in values]
        return keyed("name", bytes([ActionKind.REQUEST]) + framed(*parts))

    def _headers(self, *, was_decoded: bool) -> tuple[list[Field], list[tuple[str, str, str]]]:
        kept, dropped = [], []
        for name, value, _ in self._lines:
            rule = header_rule(name)
            if name == "content-encoding" and was_decoded:
                rule = "body-form"
            if rule:
                dropped.append((name, value, rule))
            elif name == "content-type":
                kept.append((name, MediaType.parse(value).canonical()))
            elif name in ("authorization", "proxy-authorization"):
                kept.append((name, _basic(value, self._replacer)))
            else:
                kept.append((name, value))
        return list(numbered(sorted(kept, key=lambda pair: pair[0]), "header")), dropped

    def _forms(self, form: str) -> tuple[tuple[str, bytes], ...]:
        lines = [line for name, _, line in self._lines if header_rule(name) is None]
        return (
            ("target-form", blake3(self._target).digest()),
            ("header-form", blake3(framed(*lines)).digest()),
            (f"body-form:{form}", self._body_hash.digest()),
        )


def _replaced(item: Field, value: str) -> Field:
    return item if value is item.value else Field(item.name, value, whole=item.whole)


def _authority(
    host: str | None, port: int | None, lines: list[tuple[str, str, bytes]], *, tls: bool
) -> tuple[str, int]:
    named = next((value for name, value, _ in lines if name == "host"), "")
    if host is None or port is None:
        text, colon, digits = named.rpartition(":")
        has_port = bool(colon) and digits.isascii() and digits.isdigit() and len(digits) <= 5  # noqa: PLR2004 - 65535
        host = host if host is not None else (text if has_port else named)
        if port is None:
            port = int(digits) if has_port else (443 if tls else 80)
    return host.lower().rstrip("."), port


# --- differences ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """One field of two identities; None where a side does not have it.

    ``own_ids``: both are the same but for ids that the agent minted.
    """

    field: str
    recorded: str | None
    now: str | None
    own_ids: bool = False


def differences(recorded: Identity, now: Identity) -> list[Difference]:
    """Return the fields that differ, in the order of the recorded side, then the surplus ones.

    Those that differ in ids of the agent's own alone come last.
    """
    left = {item.name: item.value for item in recorded.fields}
    right = {item.name: item.value for item in now.fields}
    names = [*left, *(name for name in right if name not in left)]
    shapes = _shapes(recorded), _shapes(now)
    found = []
    for name in names:
        a, b = left.get(name), right.get(name)
        if a != b:
            own_ids = a is not None and b is not None
            own_ids = own_ids and _masked(a or "", shapes[0]) == _masked(b or "", shapes[1])
            found.append(Difference(name, a, b, own_ids))
    return sorted(found, key=lambda item: item.own_ids)


def _shapes(identity: Identity) -> dict[str, str]:
    """Return what stands for each minted id of an action, long ones first."""
    kinds = {text_of(token.text): text_of(token.kind) for token in identity.tokens}
    return dict(sorted(kinds.items(), key=lambda item: -len(item[0])))


def _masked(value: str, shapes: Mapping[str, str]) -> str:
    for text, kind in shapes.items():
        value = value.replace(text, f"\0{kind}\0")
    return value


def ignored(recorded: Identity, now: Identity) -> tuple[str, ...]:
    """Return the rules that two requests of equal normalised identity needed, sorted.

    A header rule is given with its field: ``header:trace traceparent``.
    """
    if recorded.strict == now.strict:
        return ()
    if now.kind is not ActionKind.REQUEST:
        return tuple(sorted({f"volatile:{name}" for name in (*recorded.volatile, *now.volatile)}))
    left, right = Counter(recorded.dropped), Counter(now.dropped)
    rules = {f"{rule} {quoted(name)}" for name, _, rule in (left - right) + (right - left)}
    if recorded.telemetry and recorded.telemetry == now.telemetry:
        rules.add(f"telemetry:{recorded.telemetry}")
    volatile = {f"volatile:{name}" for name in (*recorded.volatile, *now.volatile)}
    for (rule, a), (other, b) in zip(recorded.forms, now.forms, strict=False):
        if a != b and not volatile:  # where a value differs, the form does too
            rules.add(rule if rule == other else f"{rule} {other}")
    rules |= volatile
    return tuple(sorted(rules or {"header-form"}))
