"""Runs hostile and damaged bundles through hark._native built with sanitizers.

bundle_sanitized.py DIR    DIR holds the extension; the sanitizers' runtimes are preloaded
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path

DAMAGED = 400


def load_native(directory: Path) -> None:
    """Put the sanitized extension where ``import hark._native`` finds it."""
    import hark  # noqa: PLC0415

    (path,) = directory.glob("_native*.so")
    spec = importlib.util.spec_from_file_location("hark._native", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["hark._native"] = module
    hark._native = module


def main() -> int:
    """Check every hostile file and some damaged ones."""
    load_native(Path(sys.argv[1]).resolve())
    sys.path.insert(0, str(Path(__file__).parent))
    from bundle_damage import check, damaged  # noqa: PLC0415
    from bundle_hostile import cases  # noqa: PLC0415
    from bundle_making import CORES, verified  # noqa: PLC0415

    assert CORES[0].name == "native"
    for case in cases():
        report = verified(case.data, CORES[0])
        assert report.verdict is case.verdict, (case.name, report.why)
    for whole, data in itertools.islice(damaged(1), DAMAGED):
        check(whole, data)
    print(f"bundle_sanitized: {len(cases())} hostile and {DAMAGED} damaged files")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
