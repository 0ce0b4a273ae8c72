"""Writes the vectors of docs/spec/bundle.md again. They change only when the format does.

    PYTHONPATH=tests/bundle python tests/vectors/make.py

Keys, salts and clocks are fixed: the same code writes the same bytes, but for zstd versions.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from pathlib import Path

import test_example
from bundle_hostile import cases
from bundle_making import CORES, KEY, header, made, small, verified

from hark.bundle import proof
from hark.bundle.prover import prove
from hark.bundle.reader import Bundle
from hark.bundle.sealing import FileKey

HERE = Path(__file__).resolve().parent
SIZE_MAX = 16_384


def headers(name: str, data: bytes) -> list[str]:
    """What a reader must find."""
    report = verified(data)
    lines = ["hark-vector: bundle", f"name: {name}", f"verdict: {report.verdict.value}"]
    lines.append(f"events: {report.events}")
    lines.append(f"signed: {report.signed_events}")
    lines.append(f"root: {report.root.hex()}")
    if report.broken_event is not None:
        lines.append(f"broken-event: {report.broken_event}")
    if report.why:
        lines.append(f"comment: {report.why}")
    return lines


def write(directory: Path, name: str, lines: list[str], data: bytes) -> None:
    """One vector: headers, an empty line, bytes."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    packed = zlib.compress(data, 9)
    lines = [*lines, f"size: {len(data)}", "compressed: zlib"]
    text = "\n".join(lines) + "\n\n"
    (directory / f"{slug}.vec").write_bytes(text.encode() + packed)


def bundles(directory: Path) -> None:
    """Hostile files, and whole ones of every feature."""
    for case in cases():
        if len(case.data) <= SIZE_MAX:
            write(directory, case.name, headers(case.name, case.data), case.data)
    key = FileKey(bytes(range(32)))
    sealed = made(
        lambda w: (w.append(19, 1, {4: b"open"}), w.append(40, 2, {4: b"sealed"}, sealed=True)),
        file_key=key,
        header=header(recipients=((32, bytes(80)),)),
    )
    many = made(lambda w: [w.append(19, i, {2: i}) for i in range(600)])
    example = test_example.example(CORES[0])
    features = (
        ("feature: sealed items", sealed),
        ("feature: stored nodes", many),
        ("feature: worked example", example),
    )
    for name, data in features:
        write(directory, name, headers(name, data), data)


def proofs(directory: Path) -> None:
    """Proofs of events at every kind of place, and ones that do not hold."""
    for count in (1, 2, 3, 7, 8, 130, 300):
        data = made(lambda w, count=count: [w.append(19, i, {2: i}) for i in range(count)])
        for seq in sorted({0, count // 2, count - 1}):
            with Bundle.from_bytes(data) as bundle:
                item = prove(bundle, seq)
            lines = ["hark-vector: proof", f"name: event {seq} of {count}", "verdict: VERIFIED"]
            lines.append(f"key: {KEY.public.hex()}")
            write(directory, f"proof {seq} of {count}", lines, item.encode())
    with Bundle.from_bytes(small()) as bundle:
        body = prove(bundle, 20, bodies=True)
    whole = ["hark-vector: proof", "name: event with its body", "verdict: VERIFIED"]
    write(directory, "proof with body", whole, body.encode())
    value = json.loads(proof.to_json(body))
    for name in ("path", "peaks", "head", "payload", "salt", "header"):
        changed = json.loads(json.dumps(value))
        if isinstance(changed[name], list):
            changed[name][0] = "00" * 32
        else:
            changed[name] = changed[name][:-2] + f"{int(changed[name][-2:], 16) ^ 1:02x}"
        lines = ["hark-vector: proof", f"name: changed {name}", "verdict: BROKEN"]
        write(
            directory, f"proof changed {name}", lines, proof.from_json(json.dumps(changed)).encode()
        )


def main() -> int:
    """Write all vectors."""
    assert CORES[0].name == "native"
    for old in HERE.glob("*/*.vec"):
        old.unlink()
    for name, fill in (("bundle", bundles), ("proof", proofs)):
        directory = HERE / name
        directory.mkdir(exist_ok=True)
        fill(directory)
        print(f"{name}: {len(list(directory.glob('*.vec')))} vectors")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
