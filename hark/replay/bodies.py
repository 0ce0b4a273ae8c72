"""Request bodies in canonical form, by media type, as a stream (docs/spec/replay.md, "Identity").

Pure. Rules: memory is bounded: JSON and forms are held up to ``IDENTITY_BODY_MAX_BYTES``, parts of
a multipart body up to ``IDENTITY_PART_MAX_BYTES``, everything else is hashed as it comes. What is
not well-formed is compared as bytes, never guessed. Any split gives the same fields.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote_to_bytes

from blake3 import blake3

from hark import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hark.replay.tokens import Masker, MaskStream, Token

__all__ = ["Body", "BodyFields", "Decoder", "Field", "MediaType"]
__all__ += ["decoder_of", "numbered", "quoted", "text_of"]

_SIMPLE = re.compile(r"[0-9A-Za-z_.\-]+")
_TOKEN = re.compile(r"[0-9A-Za-z!#$%&'*+.^_`|~\-]+")  # RFC 9110 section 5.6.2
_VALUE = re.compile(_TOKEN.pattern + r'|"(?:[^"\\]|\\.)*"')
_KEY = re.compile(r"[0-9A-Za-z_\-]+")
_ZSTD_SLICE_BYTES = 256  # one RLE block of four bytes holds 128 KiB: a slice cannot make over 8 MiB


@dataclass(frozen=True, slots=True)
class Field:
    """One compared value. ``masked``, when given, stands for it in the renamed hash.

    ``whole``: the value may be a base64 id.
    """

    name: str
    value: str
    masked: bytes | None = None
    whole: bool = False


def text_of(raw: bytes) -> str:
    """Return bytes as text that no other bytes give."""
    return raw.decode("utf-8", "surrogateescape")


def quoted(name: str) -> str:
    """Return a name for a field: as it is when simple, else as a JSON string."""
    return name if _SIMPLE.fullmatch(name) else json.dumps(name)


@dataclass(frozen=True, slots=True)
class MediaType:
    """A Content-Type, parsed (RFC 9110 section 8.3): names in lower case, values unquoted.

    ``parameters`` is None when it is not well-formed; then it is compared as it was written.
    """

    written: str
    essence: str
    parameters: tuple[tuple[str, str], ...] | None

    @classmethod
    def parse(cls, value: str) -> MediaType:
        """Parse; never fails."""
        essence, *rest = _split_outside_quotes(value)
        pairs = []
        for part in rest:
            name, _, text = part.strip().partition("=")
            if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(text):
                return cls(value, essence.strip().lower(), None)
            pairs.append((name.lower(), _unquoted(text)))
        return cls(value, essence.strip().lower(), tuple(pairs))

    def get(self, name: str) -> str | None:
        """Return the first parameter of that name."""
        return next((value for key, value in self.parameters or () if key == name), None)

    def canonical(self) -> str:
        """Return it with sorted parameters, without a multipart boundary."""
        if self.parameters is None:
            return self.written
        texts = [self.essence]
        for name, value in sorted(self.parameters, key=lambda pair: pair[0]):
            if name == "boundary" and self.essence.startswith("multipart/"):
                continue
            text = value.lower() if name == "charset" else value
            texts.append(f"{name}={text if _TOKEN.fullmatch(text) else _requoted(text)}")
        return "; ".join(texts)

    def form(self) -> str:
        """Return the form a body of this type has."""
        if self.essence == "application/json" or self.essence.endswith("+json"):
            return "json"
        if self.essence == "application/x-www-form-urlencoded":
            return "form"
        if self.essence.startswith("multipart/") and self.get("boundary"):
            return "multipart"
        return "text" if self.essence.startswith("text/") else "bytes"


def _split_outside_quotes(value: str) -> list[str]:
    parts, start, inside, escaped = [], 0, False, False
    for at, char in enumerate(value):
        if escaped:
            escaped = False
        elif inside and char == "\\":
            escaped = True
        elif char == '"':
            inside = not inside
        elif char == ";" and not inside:
            parts.append(value[start:at])
            start = at + 1
    return [*parts, value[start:]]


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value


def _requoted(value: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


# --- content codings ------------------------------------------------------------------------------


class Decoder(Protocol):
    """Removes a content coding from a stream."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield decoded bytes in bounded pieces; raises ValueError."""

    def is_whole(self) -> bool:
        """Whether the coded stream has ended where the data ended."""


class _Identity:
    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data

    def is_whole(self) -> bool:
        return True


class _Zlib:
    def __init__(self, wbits: int) -> None:
        self._stream = zlib.decompressobj(wbits)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            try:
                piece = self._stream.decompress(data, limits.IDENTITY_PIECE_BYTES)
            except zlib.error as error:
                raise ValueError(str(error)) from None
            if self._stream.unused_data:
                raise ValueError("bytes behind the end")
            data = self._stream.unconsumed_tail
            if piece:
                yield piece

    def is_whole(self) -> bool:
        return self._stream.eof and not self._stream.unused_data


class _Zstd:
    def __init__(self) -> None:
        import zstandard  # noqa: PLC0415 - imported when first needed

        self._error = zstandard.ZstdError  # not a ValueError
        self._stream = zstandard.ZstdDecompressor(
            max_window_size=limits.BUNDLE_WINDOW_MAX_BYTES
        ).decompressobj()

    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), _ZSTD_SLICE_BYTES):
            try:
                if self._stream.eof:
                    raise ValueError("bytes behind the end")
                piece = self._stream.decompress(data[at : at + _ZSTD_SLICE_BYTES])
            except self._error as error:
                raise ValueError(str(error)) from None
            if piece:
                yield piece

    def is_whole(self) -> bool:
        return bool(self._stream.eof) and not self._stream.unused_data


class _Brotli:
    def __init__(self) -> None:
        import brotli  # noqa: PLC0415 - imported when first needed

        self._error = brotli.error  # not a ValueError
        self._stream = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            yield from self._pieces(data)
        except self._error as error:
            raise ValueError(str(error)) from None

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        """Decode all of ``data``: what does not fit into one piece waits inside the decoder."""
        while True:
            if data and self._stream.is_finished():
                raise ValueError("bytes behind the end")
            piece = self._stream.process(data, output_buffer_limit=limits.IDENTITY_PIECE_BYTES)
            data = b""
            if not piece:
                return
            yield piece

    def is_whole(self) -> bool:
        return bool(self._stream.is_finished())


_DECODERS: dict[str, Callable[[], Decoder]] = {
    "": _Identity,
    "identity": _Identity,
    "gzip": lambda: _Zlib(31),
    "x-gzip": lambda: _Zlib(31),
    "deflate": lambda: _Zlib(15),
    "zstd": _Zstd,
    "br": _Brotli,
}


def decoder_of(coding: str) -> Decoder | None:
    """Return what removes a content coding, or None for one that cannot be removed."""
    make = _DECODERS.get(coding.strip().lower())
    return make() if make else None


# --- forms ----------------------------------------------------------------------------------------


class _Number(str):
    """A JSON number as it was written."""

    __slots__ = ()


class _NotCanonical(ValueError):
    """A body that its form does not fit."""


def _constant(_text: str) -> Any:
    raise _NotCanonical("NaN or Infinity")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _NotCanonical("a key twice")
    return found


def parse_json(raw: bytes) -> Any:
    """Parse strictly: UTF-8, no key twice, no NaN. Numbers stay text. Raises ``ValueError``."""
    try:
        return json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_constant,
        )
    except RecursionError:
        raise _NotCanonical("nested too deep") from None


def json_fields(value: Any, path: str = "body $", depth: int = 0) -> Iterator[Field]:
    """Yield one field per leaf, keys sorted."""
    if depth > limits.IDENTITY_JSON_DEPTH:
        raise _NotCanonical("nested too deep")
    if isinstance(value, dict) and value:
        for key in sorted(value):
            step = f".{key}" if _KEY.fullmatch(key) else f"[{json.dumps(key)}]"
            yield from json_fields(value[key], path + step, depth + 1)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from json_fields(item, f"{path}[{index}]", depth + 1)
    else:
        yield _leaf(path, value)


def _leaf(path: str, value: Any) -> Field:
    if isinstance(value, _Number):
        return Field(path, str(value))
    if isinstance(value, str):
        # One quote in front tells a string from a number or a word.
        return Field(path, '"' + value, whole=True)
    names = {None: "null", True: "true", False: "false"}
    return Field(path, "{}" if value == {} else "[]" if value == [] else names[value])


def form_fields(raw: bytes, label: str) -> Iterator[Field]:
    """Yield one field per parameter, sorted by name; repeated names keep their order."""
    pairs = []
    for part in raw.split(b"&"):
        name, eq, value = part.partition(b"=")
        pairs.append((_form_text(name), text_of(eq) + _form_text(value)))
    yield from numbered(sorted(pairs, key=lambda pair: pair[0]), label)


def _form_text(raw: bytes) -> str:
    return text_of(unquote_to_bytes(raw.replace(b"+", b" ")))


def numbered(pairs: list[tuple[str, str]], label: str) -> Iterator[Field]:
    """Yield pairs as fields; the second of a name gets ``#1``, and so on."""
    seen: dict[str, int] = {}
    for name, value in pairs:
        number = seen.get(name, 0)
        seen[name] = number + 1
        yield Field(f"{label} {quoted(name)}{f'#{number}' if number else ''}", value, whole=True)


class _Multipart:
    """Parts of a multipart body (RFC 2046 section 5.1.1) from a stream."""

    def __init__(self, boundary: bytes) -> None:
        self._dash = b"--" + boundary
        self._delimiter = b"\r\n--" + boundary
        self._state = "preamble"
        self._held = b"\r\n"  # so that a delimiter on the first line is like any other
        self._part = -1
        self._content = bytearray()
        self._hash = blake3()
        self._length = 0
        self._skip = 0
        self.fields: list[Field] = []

    def feed(self, data: bytes) -> None:
        """Take bytes; raises ``ValueError`` when they do not fit."""
        self._held += data
        while self._step():
            pass

    def finish(self) -> list[Field]:
        """Return the fields; raises ``ValueError`` without a closing delimiter."""
        if self._state != "epilogue":
            raise _NotCanonical("multipart without an end")
        return self.fields

    def _step(self) -> bool:
        if self._state == "epilogue":
            self._held = b""
            return False
        if self._state == "delimiter":
            return self._after_delimiter()
        if self._state == "head":
            return self._head()
        at = self._held.find(self._delimiter)
        end = at if at >= 0 else max(0, len(self._held) - len(self._delimiter) + 1)
        if self._state == "content":
            self._take(self._held[:end])
        self._held = self._held[end:]
        if at < 0:
            return False
        if self._state == "content":
            self._end_part()
        self._held = self._held[len(self._delimiter) :]
        self._state = "delimiter"
        return True

    def _after_delimiter(self) -> bool:
        line, found, rest = self._held.partition(b"\r\n")
        if self._held.startswith(b"--"):
            self._state = "epilogue"
            return True
        if not found:
            if len(line) > limits.IDENTITY_LINE_MAX_BYTES:
                raise _NotCanonical("a long delimiter line")
            return False
        if line.strip(b" \t"):
            raise _NotCanonical("text behind a delimiter")
        self._held = b"\r\n" + rest  # an empty head begins with its last line
        self._state = "head"
        self._part += 1
        if self._part >= limits.IDENTITY_PARTS_MAX:
            raise _NotCanonical("too many parts")
        return True

    def _head(self) -> bool:
        at = self._held.find(b"\r\n\r\n")
        if at < 0:
            if len(self._held) > limits.IDENTITY_HEAD_MAX_BYTES:
                raise _NotCanonical("a large part head")
            return False
        lines = [line for line in self._held[:at].split(b"\r\n") if line]
        pairs = []
        for line in lines:
            name, _, value = line.partition(b":")
            pairs.append((text_of(name).strip().lower(), text_of(value).strip()))
        label = f"body part[{self._part}] header"
        self.fields += numbered(sorted(pairs, key=lambda pair: pair[0]), label)
        self._held = self._held[at + 2 :]  # the delimiter of a part without content needs this
        self._begin_part()
        return True

    def _begin_part(self) -> None:
        self._content.clear()
        self._hash = blake3()
        self._length = 0
        self._state = "content"
        self._skip = 2  # the empty line that ends the head

    def _take(self, data: bytes) -> None:
        if self._skip:
            data, self._skip = data[self._skip :], max(0, self._skip - len(data))
        self._hash.update(data)
        self._length += len(data)
        if self._length <= limits.IDENTITY_PART_MAX_BYTES:
            self._content += data

    def _end_part(self) -> None:
        name = f"body part[{self._part}]"
        if self._length <= limits.IDENTITY_PART_MAX_BYTES:
            self.fields.append(Field(name, text_of(bytes(self._content))))
        else:
            self.fields.append(Field(name, f"{self._length} bytes {self._hash.hexdigest()}"))


# --- a body ---------------------------------------------------------------------------------------


class _Hashed:
    """Length and hash of a stream, plain and masked."""

    def __init__(self, masker: Masker) -> None:
        self._plain = blake3()
        self._masked = blake3()
        self._stream: MaskStream = masker.stream()
        self.tokens = masker.tokens
        self._length = 0

    def feed(self, data: bytes) -> None:
        self._plain.update(data)
        self._masked.update(self._stream.feed(data))
        self._length += len(data)

    def field(self, name: str) -> Field:
        self._masked.update(self._stream.finish())
        value = f"{self._length} bytes {self._plain.hexdigest()}"
        return Field(name, value, f"{self._length} bytes ".encode() + self._masked.digest())


@dataclass(frozen=True, slots=True)
class BodyFields:
    """A body in canonical form. ``tokens``: ids that were masked while it streamed by."""

    form: str
    was_decoded: bool
    fields: tuple[Field, ...]
    tokens: tuple[Token, ...] = ()


class Body:
    """One request body. Feed it without its transfer coding, then ``finish`` it once."""

    def __init__(self, media: MediaType, coding: str, masker: Callable[[], Masker]) -> None:
        self._form = media.form()
        self._masker = masker
        self._is_coded = coding not in ("", "identity")
        self._coded = _Hashed(masker()) if self._is_coded else None
        self._decoder = decoder_of(coding)
        self._buffer: bytearray | None = bytearray()
        self._hashed: _Hashed | None = None
        self._multipart: _Multipart | None = None
        if self._form == "multipart":
            boundary = (media.get("boundary") or "").encode("utf-8", "surrogateescape")
            self._multipart = _Multipart(boundary)
        self._length = 0
        self._decoded = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._length += len(data)
        if self._coded is not None:
            self._coded.feed(data)
        if self._decoder is None:
            return
        try:
            for piece in self._decoder.feed(data):
                self._take(piece)
        except ValueError:
            self._decoder = None

    def _take(self, data: bytes) -> None:
        self._decoded += len(data)
        if self._is_coded and self._decoded > limits.IDENTITY_DECODED_MAX_BYTES:
            raise ValueError("decodes to too much")
        if self._multipart is not None:
            try:
                self._multipart.feed(data)
            except _NotCanonical:
                self._multipart = None
        if self._buffer is None:
            self._bytes().feed(data)
            return
        self._buffer += data
        is_held = self._form in ("json", "form")
        most = limits.IDENTITY_BODY_MAX_BYTES if is_held else limits.IDENTITY_PART_MAX_BYTES
        if len(self._buffer) > most:
            self._bytes()

    def _bytes(self) -> _Hashed:
        if self._hashed is None:
            self._hashed = _Hashed(self._masker())
            self._hashed.feed(bytes(self._buffer or b""))
            self._buffer = None
        return self._hashed

    def finish(self) -> BodyFields:
        """Return the fields, the first of which is the form."""
        if self._length == 0:
            return BodyFields("none", not self._is_coded, (Field("body", "none"),))
        if self._decoder is None or not self._decoder.is_whole():
            coded = self._coded or self._bytes()
            return _opaque("bytes", coded, was_decoded=False)
        try:
            fields = self._canonical()
        except ValueError:
            return _opaque("bytes", self._bytes(), was_decoded=True)
        if fields is None:
            return _opaque(self._form, self._bytes(), was_decoded=True)
        return BodyFields(self._form, True, (Field("body", self._form), *fields))

    def _canonical(self) -> list[Field] | None:
        """Return the fields of the form, or None for a hash; raises ``ValueError``."""
        if self._form == "multipart":
            if self._multipart is None:
                raise _NotCanonical("not multipart")
            return self._multipart.finish()
        if self._form == "bytes":
            return None
        if self._buffer is None:
            if self._form == "text":
                return None
            raise _NotCanonical("too large")
        raw = bytes(self._buffer)
        if self._form == "json":
            return list(json_fields(parse_json(raw)))
        if self._form == "form":
            return list(form_fields(raw, "body form"))
        return [Field("body text", text_of(raw))]


def _opaque(form: str, hashed: _Hashed, *, was_decoded: bool) -> BodyFields:
    field = hashed.field(f"body {form}")
    return BodyFields(form, was_decoded, (Field("body", form), field), tuple(hashed.tokens))
