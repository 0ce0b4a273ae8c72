"""Run the command as a person does, from a clean environment, and keep what it said.

Rules. Preset CA variables of the test host are cleared: a client inside must trust what hark gives
it and nothing else. Every process started here is ended by its id.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = [
    "HARK",
    "NO_SENSORS",
    "PYTHON",
    "ROOT",
    "Finished",
    "as_nobody",
    "environment",
    "hark",
    "need",
    "upstreams",
]

ROOT = Path(__file__).resolve().parents[2]
HARK = ROOT / ".venv" / "bin" / "hark"
PYTHON = ROOT / ".venv" / "bin" / "python"
DEADLINE_S = 90
# Shell words that take the sensors away in a mount namespace of its own: no BTF to load them by,
# and out of sight those that another run on this machine loaded, which a run would share.
NO_SENSORS = (
    "mount -t tmpfs none /sys/kernel/btf; "
    "for d in /run/hark/sensors /run/hark/bpf /sys/fs/bpf; do "
    "[ ! -d $d ] || mount -t tmpfs none $d; done"
)

# Shell words that put $1 at its own path again, below an open $2 that holds nothing else.
_OPENED = (
    'mount --bind "$1" /mnt; mount -t tmpfs -o mode=755 none "$2"; mkdir -p "$1"; '
    'mount --move /mnt "$1"; shift 2; exec "$@"'
)

_CLEARED = ("CERT", "_CA_", "CA_BUNDLE", "CAINFO", "SSL_", "ROOTS", "PROXY", "proxy")


def need(feature: str, present: bool) -> None:
    """Skip, loudly, for a missing feature; fail when HARK_REQUIRE names it, or says ``all``."""
    if present:
        return
    required = os.environ.get("HARK_REQUIRE", "").split(",")
    if feature in required or "all" in required:
        pytest.fail(f"{feature} is required by HARK_REQUIRE and is missing")
    pytest.skip(f"needs {feature}")


def need_program(name: str) -> str:
    """Return the real path of a program of this host, or skip."""
    found = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
    need(name, found is not None)
    assert found is not None
    return found


def as_nobody(*options: str) -> tuple[str, ...]:
    """Return the words that run a command as nobody; ``options`` are setpriv's.

    A clone may lie below a folder that only root may enter, as mktemp makes them. Then it is shown
    to the command at the same path, with that folder open, in a mount namespace of its own.
    """
    ids = (need_program("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups")
    words = (*ids, *options, "--")
    closed = [folder for folder in ROOT.parents if not folder.stat().st_mode & stat.S_IXOTH]
    if not closed:
        return words
    opened = (need_program("unshare"), "-m", need_program("sh"), "-ec", _OPENED, "sh")
    return (*opened, str(ROOT), str(closed[-1]), *words)


def environment(**more: str) -> dict[str, str]:
    """Return a person's environment: no CA variables, no proxies, plus ``more``."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not any(word in name for word in _CLEARED) and not name.startswith("PYTEST")
    }
    kept["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    if ROOT.stat().st_uid != 0:
        kept["HARK_DEV"] = "1"
    return {**kept, **more}


def upstreams(address: str, *hosts: str) -> list[str]:
    """Return the options that send ``hosts`` to a stub."""
    return [f"--upstream={host}={address}" for host in hosts]


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended. ``status`` is negative for a signal, as subprocess has it."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Its stdout as text."""
        return self.stdout.decode(errors="replace")


def hark(
    *words: str | Path,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    before: tuple[str, ...] = (),
    stdin: bytes = b"",
    seconds: float = DEADLINE_S,
) -> Finished:
    """Run one hark command to its end; ``before`` are words in front, such as setpriv's."""
    done = subprocess.run(
        [*before, str(HARK), *map(str, words)],
        cwd=cwd,
        env=environment() if env is None else env,
        input=stdin,
        capture_output=True,
        timeout=seconds,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def write_policy(path: Path, text: str) -> Path:
    """Write a policy, checked to be TOML so that a typo here is not taken for a test."""
    tomllib.loads(text)
    path.write_text(text)
    return path
