"""Ids by their shape, in whole values and in streams (docs/spec/replay.md, "Renaming").

Pure. Rules: whether a run of characters holds an id depends on that run alone, so a stream gives
the same answer for every split. A run longer than ``TOKEN_RUN_MAX_BYTES`` holds none. What is not
certainly an id is not one: it then compares literally.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hark import limits

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["InputScanner", "MaskStream", "Masker", "Ownership", "Token"]

# Prefixes that services and SDKs put before random ids. A word before "_" is no evidence.
_PREFIXES = (
    b"asst|batch|call|chatcmpl|cmpl|conv|ctc|ctr|evt|fc|fco|file|gen|ig|item|job|mcp|mcpl|mcpr|msg|"
    b"req|resp|rs|run|ses|sess|session|span|srvtoolu|step|task|thread|thrd|tool|toolu|trace|txn|ws"
)
_RUN_CHARS = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-:.+"
_RUN = re.compile(rb"[0-9A-Za-z_\-:.+]{8,}")
_SUBRUN = re.compile(rb"[0-9A-Za-z_\-]{22,}")
_ID = re.compile(
    rb"(?<![0-9A-Za-z])(?:"
    rb"(?P<uuid>[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12})"
    rb"|formdata-undici-(?P<undici>[0-9]{12})"
    rb"|(?:" + _PREFIXES + rb")[_-](?P<id>[0-9A-Za-z]{12,64})"
    rb"|(?P<word>[0-9A-Za-z]{12,128})"
    rb")(?![0-9A-Za-z])"
)
_TIME = re.compile(
    rb"(?<![0-9A-Za-z.])(?:"
    rb"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    rb"(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
    rb"|[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
    rb"|1(?:5[789]|[6-9][0-9])[0-9]{7}(?:[0-9]{3}|[0-9]{6}|[0-9]{9})?(?:\.[0-9]+)?"
    rb")(?![0-9A-Za-z])"
)
_LOWER_HEX = re.compile(rb"[0-9a-f]+")
_UPPER_HEX = re.compile(rb"[0-9A-F]+")
_B64 = re.compile(rb"[0-9A-Za-z_\-]+")
_DIGIT = re.compile(rb"[0-9]")
_CLASSES = re.compile(rb"0+|A+|a+")
_CLASS = bytes(
    48 if 48 <= c < 58 else 65 if 65 <= c < 91 else 97 if 97 <= c < 123 else c  # noqa: PLR2004 - ASCII
    for c in range(256)
)
_ULID = re.compile(rb"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_ESCAPES = re.compile(rb"\\(?:u[0-9A-Fa-f]{4}|[^u])")
_HEX_MIN = 12
_B64_MIN = 22
_B64_MAX = 128


@dataclass(frozen=True, slots=True)
class Token:
    """One minted id as it stood in an action; ``kind`` holds its length where that varies."""

    kind: bytes
    text: bytes


def _turns(text: bytes) -> int:
    """Return at how many places the class of character (upper, lower, digit) changes."""
    return max(0, len(_CLASSES.findall(text.translate(_CLASS, b"_-"))) - 1)


def _has_letter_and_digit(text: bytes) -> bool:
    return not text.isdigit() and not text.isalpha()


def _word_kind(text: bytes) -> bytes | None:
    """Return the kind of 12 to 128 letters and digits."""
    if not _has_letter_and_digit(text):
        return None
    if _ULID.fullmatch(text):
        return b"ulid"
    if len(text) >= _HEX_MIN and (_LOWER_HEX.fullmatch(text) or _UPPER_HEX.fullmatch(text)):
        return b"hex%d" % len(text)
    return None


def _prefixed_kind(text: bytes) -> bytes | None:
    has_digit = _DIGIT.search(text) is not None
    if text.isdigit() or not (has_digit or 10 * _turns(text) >= 3 * len(text)):
        return None
    return b"id%d" % len(text)


def _b64_kind(text: bytes) -> bytes | None:
    """Return the kind of a whole value that is base64url of random bytes."""
    if not _B64_MIN <= len(text) <= _B64_MAX or not _B64.fullmatch(text):
        return None
    if 5 * _turns(text) < 2 * len(text):
        return None
    has_all = _DIGIT.search(text) is not None and text.lower() != text != text.upper()
    return b"b64%d" % len(text) if has_all else None


def _match_kind(match: re.Match[bytes]) -> tuple[bytes, str] | None:
    """Return kind and group name of a candidate, or None for a word that is no id."""
    group = match.lastgroup or ""
    text = match.group(group)
    if group == "id":
        kind = _prefixed_kind(text)
    elif group == "word":
        kind = _word_kind(text)
    else:
        kind = group.encode()
    return (kind, group) if kind else None


class Ownership:
    """Who said an id first: an input or the agent. The first one counts for the whole run."""

    def __init__(self, most: int = limits.REPLAY_TOKENS_MAX) -> None:
        self._inputs: set[bytes] = set()
        self._minted: set[bytes] = set()
        self._most = most
        self.is_full = False

    def saw(self, text: bytes) -> None:
        """Note an id of an input."""
        if text not in self._minted and not self.is_full:
            self._inputs.add(text)
            self.is_full = len(self._inputs) >= self._most

    def mint(self, text: bytes) -> bool:
        """Note an id of an action; returns whether it is the agent's own.

        Once too many ids of inputs are known, none is the agent's: it might be a forgotten one.
        """
        if text in self._inputs:
            return False
        if text in self._minted:
            return True
        if self.is_full or len(self._minted) >= self._most:
            return False
        self._minted.add(text)
        return True


class Masker:
    """Masks the values of one action; numbers ids by first appearance in it."""

    def __init__(self, ownership: Ownership, *, times: bool = False) -> None:
        self.tokens: list[Token] = []
        self.times = 0
        self._ownership = ownership
        self._mask_times = times
        self._numbers: dict[bytes, int] = {}

    def mask(self, value: bytes, *, whole: bool = False) -> bytes:
        """Return ``value`` with minted ids replaced by kind and number.

        ``whole``: it is a complete value (a JSON string, a header value), so it may be base64.
        The result is injective on everything else: a NUL of the value is doubled.
        """
        if whole:
            kind = _b64_kind(value)
            # The shapes that hold in streams come first, so that they hold here too.
            if kind and not any(map(_match_kind, _ID.finditer(value))):
                return self._replace(kind, value)
        return _RUN.sub(self._run, value.replace(b"\0", b"\0\0"))

    def stream(self) -> MaskStream:
        """Return a stream that masks as ``mask`` does."""
        return MaskStream(self.mask)

    def _run(self, match: re.Match[bytes]) -> bytes:
        run = match.group()
        if len(run) > limits.TOKEN_RUN_MAX_BYTES:
            return run
        masked = _ID.sub(self._candidate, run)
        return _TIME.sub(self._time, masked) if self._mask_times else masked

    def _candidate(self, match: re.Match[bytes]) -> bytes:
        found = _match_kind(match)
        if found is None:
            return match.group()
        kind, group = found
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        whole = match.group()
        return whole[:start] + self._replace(kind, match.group(group)) + whole[end:]

    def _replace(self, kind: bytes, text: bytes) -> bytes:
        number = self._numbers.get(text)
        if number is None:
            if not self._ownership.mint(text):
                return text
            number = len(self._numbers)
            self._numbers[text] = number
            self.tokens.append(Token(kind, text))
        return b"\0%s#%d\0" % (kind, number)

    def _time(self, _match: re.Match[bytes]) -> bytes:
        self.times += 1
        return b"\0time\0"


class _RunBuffer:
    """Holds back the run of characters that the next piece may continue."""

    def __init__(self, keep_escape: bool) -> None:
        self._held = b""
        self._in_long = False
        self._keep_escape = keep_escape
        self._most = limits.TOKEN_RUN_MAX_BYTES * (2 if keep_escape else 1)

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Return (the rest of a run too long to matter, text of whole runs)."""
        rest = b""
        if self._in_long:
            after = data.lstrip(_RUN_CHARS)
            rest, data = data[: len(data) - len(after)], after
            if not data:
                return rest, b""
            self._in_long = False
        data = self._held + data
        ready = data.rstrip(_RUN_CHARS)
        if self._keep_escape:
            ready = ready.rstrip(b"\\")
        self._held = data[len(ready) :]
        if len(self._held) > self._most:
            ready, self._held = data, b""
            self._in_long = True
        return rest, ready

    def finish(self) -> bytes:
        """Return what is left."""
        held, self._held = self._held, b""
        return held


class MaskStream:
    """``Masker.mask`` for a stream: any split gives the same bytes."""

    def __init__(self, mask: Callable[[bytes], bytes]) -> None:
        self._mask = mask
        self._buffer = _RunBuffer(keep_escape=False)

    def feed(self, data: bytes) -> bytes:
        """Return what is certain so far."""
        rest, ready = self._buffer.feed(data)
        return rest + (self._mask(ready) if ready else b"")

    def finish(self) -> bytes:
        """Return the end."""
        return self._mask(self._buffer.finish())


class InputScanner:
    """Notes the ids of one input stream; JSON escapes in front of an id do not hide it."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._buffer = _RunBuffer(keep_escape=True)

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._scan(self._buffer.feed(data)[1])

    def finish(self) -> None:
        """Take the end."""
        self._scan(self._buffer.finish())

    def _scan(self, text: bytes) -> None:
        self._note(text)
        if b"\\" in text:
            self._note(_ESCAPES.sub(b" ", text))

    def _note(self, text: bytes) -> None:
        for run in _RUN.finditer(text):
            if len(run.group()) > limits.TOKEN_RUN_MAX_BYTES:
                continue
            for match in _ID.finditer(run.group()):
                found = _match_kind(match)
                if found:
                    self._ownership.saw(match.group(found[1]))
            for part in _SUBRUN.finditer(run.group()):
                if _b64_kind(part.group()):
                    self._ownership.saw(part.group())
