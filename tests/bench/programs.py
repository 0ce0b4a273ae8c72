"""The processes of a bench: stub, forwarder, and the client inside a run or outside of it.

Rules. Every process is started and ended here, by its id. The client obeys one command a line
(csrc/bench/hark_bench_client.c); a process that dies raises ``BenchError`` with what it said.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = [
    "HOST",
    "ROOT",
    "BenchError",
    "Client",
    "Server",
    "clean_environment",
    "hark_command",
    "has_program",
]

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "build" / "bench"
HARK = ROOT / ".venv" / "bin" / "hark"
HOST = "bench.example"
_END_S = 30

# A test host may preset these; the client inside must see only what hark gives it.
_CA_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
# Makes each start compile hark's modules anew, which no installation does.
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"


class BenchError(Exception):
    """A process of the bench ended or answered wrongly."""


def clean_environment() -> dict[str, str]:
    """Return this environment without what would falsify a run; HARK_DEV where it is needed."""
    kept = {k: v for k, v in os.environ.items() if k not in {*_CA_VARIABLES, _NO_BYTECODE}}
    if any(path.stat().st_uid != 0 for path in (ROOT, ROOT / "hark", HARK)):
        kept["HARK_DEV"] = "1"
    return kept


def hark_command(bundle: Path, *options: str) -> list[str]:
    """Return the words before the agent's own command."""
    return [str(HARK), "run", *options, "-o", str(bundle), "--"]


def has_program(name: str) -> bool:
    """Whether an optional reference was built on this machine."""
    return (PROGRAMS / name).exists()


class _Process:
    """A child with pipes and a file for its stderr."""

    def __init__(self, command: list[str], cwd: Path | None = None) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._command = command
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=clean_environment(),
            cwd=cwd,
        )

    def line(self) -> str:
        """Return the next line of its stdout."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        if not line.endswith("\n"):
            raise BenchError(f"{' '.join(self._command)}: ended: {self._stderr()}")
        return line.rstrip("\n")

    def _stderr(self) -> str:
        self._said.seek(0)
        return self._said.read().decode(errors="replace").strip()[-2000:]

    def close(self) -> None:
        """End it: by end of input, and after a grace by signal."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it may be gone already
            self._process.stdin.close()
        try:
            self._process.wait(self._grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._said.close()

    _grace_s: float = _END_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Server(_Process):
    """The stub or the forwarder; ``port`` is where it listens."""

    _grace_s = 0  # it serves until it is killed

    def __init__(self, name: str, *arguments: str) -> None:
        super().__init__([str(PROGRAMS / name), *arguments])
        self.port = self.line()


class Client(_Process):
    """A client; ``before`` are the words of a run around it, or nothing."""

    def __init__(
        self, *, before: list[str] | None = None, ca_file: Path | None = None, cwd: Path
    ) -> None:
        program = [str(PROGRAMS / "hark-bench-client")]
        super().__init__([*(before or []), *program, *([str(ca_file)] if ca_file else [])], cwd)

    def ask(self, *words: object) -> str:
        """Give one command and return its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((" ".join(map(str, words)) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise BenchError(f"client ended: {self._stderr()}") from None
        return self.line()

    def open(self, name: str, address: str, port: str) -> None:
        """Connect; ``address`` "-" resolves the bench's host name."""
        self.ask("open", name, HOST, address, port)

    def time(self, name: str, count: int) -> list[float]:
        """Return the latencies of ``count`` round trips, in microseconds."""
        return [int(word) / 1000 for word in self.ask("time", count, 1, name).split()]

    def syscalls(self, count: int, loops: int) -> float:
        """Return the cost of one getppid in nanoseconds: the median of ``loops`` of ``count``."""
        return median(int(self.ask("syscalls", count)) / count for _ in range(loops))
