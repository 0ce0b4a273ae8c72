"""Verification in numbered steps (docs/spec/bundle.md, "Verification").

Rules: never raises for what a file holds; every file gets one of four verdicts. Nothing is printed
here. Native and Python cores give the same report. What the report says about a run (losses,
downgrades, times) comes only from bytes that were checked before.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hark import limits
from hark.bundle import cbor
from hark.bundle.batch import Batch, Packer, frames_of
from hark.bundle.bodies import ChunkTable
from hark.bundle.core import FramesFault
from hark.bundle.events import Kind
from hark.bundle.faults import Broken, Step, Torn
from hark.bundle.format import (
    DOMAINS,
    END_MARK,
    HEAD_CONTEXT,
    HEAD_SIZE,
    HEAD_STRUCT,
    TRAILER,
    Head,
    Header,
)
from hark.bundle.index import BatchTable, Row, encode_index
from hark.bundle.notes import Sealed, check_annex, check_note, check_sealed
from hark.bundle.source import blocks, check_magic
from hark.bundle.tree import chain_next, root_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hark.bundle.core import Core, FramesResult
    from hark.bundle.keys import Signer, Trust
    from hark.bundle.source import Block, Source

__all__ = ["Downgrade", "Loss", "StepResult", "Verdict", "VerifyReport", "verify_source"]


class Verdict(StrEnum):
    """What verification comes to; the words never vary."""

    VERIFIED = "VERIFIED"
    BROKEN = "BROKEN"
    TRUNCATED = "TRUNCATED"
    REJECTED = "REJECTED"

    @property
    def exit_code(self) -> int:
        """0 verified, 3 truncated, 1 for the rest."""
        return {Verdict.VERIFIED: 0, Verdict.TRUNCATED: 3}.get(self, 1)


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that were lost while recording, as the bundle says itself."""

    seq: int
    source: str
    count: int
    detail: str


@dataclass(frozen=True, slots=True)
class Downgrade:
    """A control the run did not have."""

    seq: int
    feature: str
    cause: str
    effect: str


@dataclass(frozen=True, slots=True)
class StepResult:
    """One numbered step: ``ok``, ``failed``, or None when it was not finished."""

    step: Step
    title: str
    ok: bool | None
    detail: str


_TITLES = {
    Step.HEADER: "header is canonical and names its key",
    Step.BLOCKS: "every block is whole, in order and within its limits",
    Step.EVENTS: "every event matches its leaf and is canonical",
    Step.BODIES: "every body matches its root",
    Step.CHAIN: "chain and tree join all batches",
    Step.HEADS: "every head is signed and states the tree at its place",
    Step.SEAL: "a final head closes the bundle",
    Step.INDEX: "index and trailer agree with the events",
    Step.SIGNER: "the signer is known",
}


@dataclass(slots=True, kw_only=True)
class VerifyReport:
    """What verification found. Counts cover the part of the file that verified.

    ``broken_event`` is the number of the first event that was changed, where it can be named;
    else ``broken_range`` is the batch that holds it, [first, end). ``untold`` losses and downgrades
    are not listed, since a hostile file may hold millions.
    """

    verdict: Verdict = Verdict.BROKEN
    why: str = ""
    signer: Signer | None = None
    header: Header | None = None
    events: int = 0
    signed_events: int = 0
    heads: int = 0
    sealed: bool = False
    index_missing: bool = False
    chunks: int = 0
    body_bytes: int = 0
    redacted_events: int = 0
    redacted_chunks: int = 0
    sealed_blocks: int = 0
    annexes: int = 0
    redaction_reasons: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    downgrades: list[Downgrade] = field(default_factory=list)
    untold: int = 0
    synthetic: bool = False
    development: bool = False
    end_reason: str | None = None
    exit_code: int | None = None
    first_head: Head | None = None
    last_head: Head | None = None
    root: bytes = b""
    size: int = 0
    broken_step: Step | None = None
    broken_event: int | None = None
    broken_range: tuple[int, int] | None = None
    core: str = ""

    def steps(self) -> list[StepResult]:
        """Return the numbered steps with their results."""
        return [StepResult(step, _TITLES[step], *self._step(step)) for step in Step]

    def _step_signer(self) -> tuple[bool | None, str]:
        if self.signer is None or self.heads == 0:
            return None, ""
        if self.verdict is Verdict.REJECTED:
            return False, self.why
        return self.signer.known or None, self.signer.text

    def _step(self, step: Step) -> tuple[bool | None, str]:
        if step is Step.SIGNER:
            return self._step_signer()
        if step is self.broken_step:
            return False, self.why
        unfinished = self.broken_step is not None and step > self.broken_step
        unsealed = step is Step.SEAL and not self.sealed
        no_index = step is Step.INDEX and (self.index_missing or not self.sealed)
        if unsealed or no_index:
            return None, self.why if self.broken_step is None else ""
        return (None, "") if unfinished else (True, "")


class _Verifier:
    """The state of one pass over a file."""

    def __init__(self, core: Core, report: VerifyReport) -> None:
        self.core = core
        self.report = report
        self.packer = Packer()
        self.mmr = core.mmr()
        self.chunks = ChunkTable(core)
        self.batches = BatchTable()
        self.header_hash = b""
        self.chain = b""
        self.public_key: Any = None
        self.head_at = 0
        self.index_at = 0
        self.trailer = False
        self.pending_seal: Sealed | None = None
        self.redacted: set[int] = set()
        self.redacted_chunks: set[int] = set()

    def run(self, source: Source, progress: Callable[[int], None] | None) -> None:
        """Check every block; raises ``Broken`` or ``Torn``."""
        check_magic(source)
        for block in blocks(source):
            if not self.header_hash:
                self._header(block)
            else:
                self._block(block, source)
            if progress is not None:
                progress(block.head.end)
        if not self.report.sealed:
            raise Torn("no final head: the run was killed or the file was cut")
        if not self.trailer:
            raise Torn("no trailer")

    def _block(self, block: Block, source: Source) -> None:
        kind = block.head.kind
        if self.trailer:
            raise Broken(Step.INDEX, "a block behind the trailer")
        if self.pending_seal is not None and kind != "b":
            raise Broken(Step.BLOCKS, "sealed items without their batch")
        if kind in "bse" and self.report.sealed:
            raise Broken(Step.SEAL, f"a block '{kind}' behind the final head")
        if kind in "arit" and not self.report.sealed:
            raise Broken(Step.SEAL, f"a block '{kind}' before the final head")
        handler = {
            "b": self._batch,
            "s": self._head,
            "e": self._sealed,
            "i": self._index,
            "a": self._annex,
            "r": self._note,
        }.get(kind)
        if handler is not None:
            handler(block)
        elif kind == "t":
            self._trailer(block, source.size())  # asked now: the file may have been growing
        else:
            raise Broken(Step.HEADER, "a second header")

    # --- step 1 ---

    def _header(self, block: Block) -> None:
        if block.head.kind != "h":
            raise Broken(Step.HEADER, "no header")
        header = Header.parse(block.body)
        self.report.header = header
        self.header_hash = self.chain = self.core.keyed(DOMAINS.header, block.body)

    # --- steps 2 to 5 ---

    def _batch(self, block: Block) -> None:
        batch = Batch.parse(block.body)
        if self.pending_seal is not None:
            check_sealed(self.pending_seal, batch.first_seq, sparse=batch.sparse)
        if batch.first_seq != self.mmr.count or batch.first_chunk != len(self.chunks):
            raise Broken(Step.BLOCKS, "a batch of other numbers than those that are due")
        self.report.broken_range = (batch.first_seq, batch.first_seq + batch.events)
        section = batch.event_section(self.packer)
        frames = self.core.frames(
            section,
            batch.event_salts(self.core),
            batch.first_seq,
            batch.events,
            strict=True,
            sparse=batch.sparse,
            locators=batch.locators,
        )
        if frames.fault is not FramesFault.OK:
            raise _frames_fault(frames, batch.first_seq)
        self._bodies(batch, section, frames)
        self._join(batch, frames)
        self.batches.add(Row(batch.first_seq, block.head.start, frames.kinds, batch.first_chunk))
        self._note_events(batch, section, frames)
        self.report.broken_range = None

    def _bodies(self, batch: Batch, section: bytes, frames: FramesResult) -> None:
        used = bytearray(batch.chunks)
        if batch.chunks:
            data = batch.chunk_section(self.packer)
            commitments = batch.chunk_commitments(self.core, data, DOMAINS.chunk)
            self.chunks.add(batch.chunk_sizes, commitments)
        if frames.refs:
            from cbor2 import loads  # noqa: PLC0415 - imported when first needed

            for event, start, end in frames.refs:
                reference = loads(section[start:end])
                seq = batch.first_seq + event
                self.report.body_bytes += self.chunks.check(reference, seq, used, batch.first_chunk)
        if batch.chunks and not batch.sparse and not all(used):
            raise Broken(Step.BODIES, "a chunk that no event of its batch refers to")

    def _join(self, batch: Batch, frames: FramesResult) -> None:
        self.mmr.append(frames.leaves)
        root = root_of(self.core, self.mmr.count, self.mmr.peaks())
        self.chain = chain_next(self.core, self.chain, self.mmr.count, root, len(self.chunks))
        if self.chain != batch.chain:
            raise Broken(Step.CHAIN, "the chain does not match")

    def _note_events(self, batch: Batch, section: bytes, frames: FramesResult) -> None:
        report = self.report
        report.events = self.mmr.count
        report.chunks = len(self.chunks)
        report.redacted_chunks += sum(batch.chunk_redacted)
        report.redacted_events += frames.redacted
        report.sealed_blocks += self.pending_seal is not None
        self.pending_seal = None
        if batch.sparse:
            self._note_sparse(batch, section)
        if frames.kinds & _TOLD:
            for i, frame in enumerate(frames_of(section, batch.events)):
                if _TOLD >> min(frame.kind, 63) & 1 and not frame.redacted:
                    _tell(report, batch.first_seq + i, frame.kind, frame.payload)

    def _note_sparse(self, batch: Batch, section: bytes) -> None:
        for i, frame in enumerate(frames_of(section, batch.events)):
            if frame.redacted:
                self.redacted.add(batch.first_seq + i)
        for i, gone in enumerate(batch.chunk_redacted):
            if gone:
                self.redacted_chunks.add(batch.first_chunk + i)

    def _sealed(self, block: Block) -> None:
        self.pending_seal = Sealed.parse(block.body)

    # --- steps 6 and 7 ---

    def _head(self, block: Block) -> None:
        if len(block.body) != HEAD_SIZE:
            raise Broken(Step.HEADS, "head of a wrong size")
        signed, signature = block.body[: HEAD_STRUCT.size], block.body[HEAD_STRUCT.size :]
        head = Head.parse(signed)
        last = self.report.last_head
        expected = (self.header_hash, self.mmr.count, self.chain, self.report.heads)
        if (head.header_hash, head.events, head.chain, head.number) != expected:
            raise Broken(Step.HEADS, f"head {self.report.heads} is not the one due here")
        if head.root != root_of(self.core, self.mmr.count, self.mmr.peaks()):
            raise Broken(Step.HEADS, f"head {head.number} states another root")
        if last is not None and head.boot_ns < last.boot_ns:
            raise Broken(Step.HEADS, f"head {head.number} is older than the one before")
        self._check_signature(signature, signed, head.number)
        self.report.heads += 1
        self.report.signed_events = head.events
        self.report.first_head = self.report.first_head or head
        self.report.last_head = head
        self.head_at = block.head.start
        self.report.sealed = head.final

    def _check_signature(self, signature: bytes, signed: bytes, number: int) -> None:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - slow to import
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
            Ed25519PublicKey,
        )

        header = self.report.header
        if header is None:
            raise Broken(Step.HEADER, "no header")
        try:
            if self.public_key is None:
                self.public_key = Ed25519PublicKey.from_public_bytes(header.public_key)
            self.public_key.verify(signature, HEAD_CONTEXT + signed)
        except (InvalidSignature, ValueError):
            raise Broken(Step.HEADS, f"the signature of head {number} does not verify") from None

    # --- step 8 ---

    def _index(self, block: Block) -> None:
        if self.index_at:
            raise Broken(Step.INDEX, "a second index")
        if block.body != encode_index(self.mmr.count, self.batches, self.mmr.nodes):
            raise Broken(Step.INDEX, "the index does not match the events")
        self.index_at = block.head.start

    def _trailer(self, block: Block, size: int) -> None:
        expected = TRAILER.pack(self.index_at, self.head_at, END_MARK)
        if not self.index_at or block.body != expected:
            raise Broken(Step.INDEX, "the trailer points elsewhere")
        if block.head.end != size:
            raise Broken(Step.INDEX, "bytes behind the trailer")
        self.trailer = True

    def _annex(self, block: Block) -> None:
        self._count_annex()
        check_annex(block.body, self.report.heads)

    def _note(self, block: Block) -> None:
        self._count_annex()
        reason = check_note(block.body, self.redacted, self.redacted_chunks)
        self.report.redaction_reasons.append(reason)

    def _count_annex(self) -> None:
        self.report.annexes += 1
        if self.report.annexes > limits.BUNDLE_ANNEXES_MAX:
            raise Broken(Step.BLOCKS, "too many annexes")


def _frames_fault(frames: FramesResult, first: int) -> Broken:
    event = first + frames.bad
    if frames.fault is FramesFault.LOCATOR:
        return Broken(Step.EVENTS, f"event {event} was changed", event)
    if frames.fault is FramesFault.CBOR:
        return Broken(Step.EVENTS, f"event {event} is not canonical: {frames.cbor.text}", event)
    why = {
        FramesFault.HEAD: "ends inside its head",
        FramesFault.LENGTH: "is longer than its section",
        FramesFault.COUNT: "is missing, or another follows",
        FramesFault.REDACTED: "is redacted in a dense batch",
    }.get(frames.fault, "cannot be hashed")
    return Broken(Step.EVENTS, f"event {event} {why}", event)


_TOLD = 1 << Kind.RUN_START | 1 << Kind.RUN_END | 1 << Kind.LOSS | 1 << Kind.DOWNGRADE


def _tell(report: VerifyReport, seq: int, kind: int, payload: bytes) -> None:
    """Take from an event what the report says about the run."""
    value = cbor.decode(payload, checked=True)
    if not isinstance(value, dict):
        return
    if kind == Kind.RUN_START:
        report.synthetic = report.synthetic or value.get(16) is True
        report.development = report.development or value.get(21) is True
    elif kind == Kind.RUN_END:
        report.end_reason = _text(value.get(6))
        code = value.get(5)
        report.exit_code = code if type(code) is int else None
    elif len(report.losses) + len(report.downgrades) >= limits.BUNDLE_TOLD_MAX:
        report.untold += 1
    elif kind == Kind.LOSS:
        count = value.get(5)
        report.losses.append(
            Loss(seq, _text(value.get(4)), count if type(count) is int else 0, _text(value.get(6)))
        )
    else:
        report.downgrades.append(
            Downgrade(seq, _text(value.get(4)), _text(value.get(5)), _text(value.get(6)))
        )


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def verify_source(
    source: Source,
    trust: Trust,
    core: Core,
    progress: Callable[[int], None] | None = None,
) -> VerifyReport:
    """Verify a bundle. ``progress`` gets the bytes done. I/O errors are raised, nothing else."""
    report = VerifyReport(size=source.size(), core=core.name)
    verifier = _Verifier(core, report)
    try:
        verifier.run(source, progress)
        report.verdict = Verdict.VERIFIED
    except Torn as torn:
        report.why = torn.why
        report.broken_range = None
        report.index_missing = report.sealed
        report.verdict = Verdict.VERIFIED if report.sealed else Verdict.TRUNCATED
        if report.sealed:
            report.why = f"index missing: {torn.why}"
    except Broken as broken:
        _break(report, broken.step, broken.why, broken.event)
    except (
        ValueError,
        TypeError,
        OverflowError,
        MemoryError,
        RecursionError,
        struct.error,
    ) as error:
        _break(report, Step.BLOCKS, f"{type(error).__name__}: {error}", None)
    report.root = root_of(core, verifier.mmr.count, verifier.mmr.peaks())
    _judge_signer(report, trust)
    return report


def _break(report: VerifyReport, step: Step, why: str, event: int | None) -> None:
    report.verdict = Verdict.BROKEN
    report.why = why
    report.broken_step = step
    report.broken_event = event


def _judge_signer(report: VerifyReport, trust: Trust) -> None:
    if report.header is None:
        return
    report.signer = trust.classify(report.header.public_key)
    if report.verdict is Verdict.BROKEN:
        return
    refusal = trust.refusal(report.signer, signed=report.heads > 0)
    if refusal:
        report.verdict = Verdict.REJECTED
        report.why = refusal
