"""Writes real launch plans into a folder, as seeds of the plan reader's fuzzer."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from launcher.test_plan import CAPS, HOST, REQUEST

from hark.launcher.plan import PathGrant, compile_plan


def main(folder: Path) -> None:
    read = (PathGrant("/data", "folder", "x"), PathGrant("/home/alice/f", "file", "x"))
    variants = {
        "plain": REQUEST,
        "terminal": replace(REQUEST, tty=(24, 80)),
        "direct": replace(REQUEST, workspace_mode="direct", destination="run.hark"),
        "grants": replace(REQUEST, read=read, write=(PathGrant("/out", "folder", "x"),)),
    }
    for name, request in variants.items():
        (folder / name).write_bytes(compile_plan(request, CAPS, HOST).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
