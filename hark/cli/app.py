"""The command: one table of verbs, and the only place that catches errors.

Rules. A verb's module is imported only when it is used, so that ``hark run`` starts fast. Each
module has ``configure(parser)`` and ``run(args) -> int``. Results go to stdout, messages to
stderr. GNU long options are the spelling; the single-dash ones of the first hark are accepted.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import os
import sys
from dataclasses import dataclass
from typing import NoReturn

from hark import __version__
from hark.cli.printable import give_up, tell
from hark.errors import HarkError

__all__ = ["VERBS", "Verb", "main"]


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@dataclass(frozen=True, slots=True)
class Verb:
    """One row of the verb table. ``old`` are single-dash spellings that mean ``--name``.

    ``failed``: the exit status for errors that would be 1 or 2 elsewhere, which are the agent's own
    here; 0: none such.
    """

    name: str
    summary: str
    old: tuple[str, ...] = ()
    failed: int = 0

    def status(self, code: int) -> int:
        """Return the exit status for an error of hark whose own status is ``code``."""
        return self.failed if self.failed and code in {1, 2} else code


VERBS = (
    Verb("run", "run a command contained, mediated and recorded", ("-policy",), failed=125),
    Verb("replay", "carry a recorded run out again, and compare", ("-key", "-policy", "-out")),
    Verb("fidelity", "record and replay a command N times, and say what was the same"),
    Verb("verify", "check a bundle: signer, chain, root, heads", ("-key",)),
    Verb("inspect", "list the events of a bundle"),
    Verb("prove", "prove one event, or check a proof file", ("-seq", "-out", "-check")),
    Verb("export", "write a bundle in another tool's form", ("-out",)),
    Verb("keygen", "make a signing key", ("-out",)),
    Verb("synth", "write a synthetic bundle", ("-key", "-corrupt", "-truncate")),
    Verb("diff", "show what the agent changed in its workspace"),
    Verb("apply", "carry the agent's changes into the workspace"),
    Verb("undo", "take the last apply of a run back"),
    Verb("discard", "throw the agent's changes away"),
    Verb("gc", "remove what dead runs left; list what is kept"),
    Verb("doctor", "probe what this kernel and host can do"),
)


def _modern(verb: Verb, argv: list[str]) -> list[str]:
    """Replace the old single-dash spellings, up to ``--``."""
    end = argv.index("--") if "--" in argv else len(argv)
    renamed = [f"-{word}" if word.split("=", 1)[0] in verb.old else word for word in argv[:end]]
    return renamed + argv[end:]


def _usage() -> str:
    width = max(len(verb.name) for verb in VERBS)
    rows = "\n".join(f"  {verb.name:<{width}}  {verb.summary}" for verb in VERBS)
    return (
        "usage: hark VERB [options]\n\n"
        f"verbs:\n{rows}\n\n"
        "`hark VERB --help` explains one. `hark --version` prints the version.\n"
    )


def _find(name: str) -> Verb | None:
    return next((verb for verb in VERBS if verb.name == name), None)


def parser_for(verb: Verb) -> argparse.ArgumentParser:
    """The argument parser of one verb, with its module imported."""
    parser = argparse.ArgumentParser(
        prog=f"hark {verb.name}", description=f"{verb.summary[:1].upper()}{verb.summary[1:]}."
    )
    importlib.import_module(f"hark.cli.{verb.name}").configure(parser)
    return parser


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in {"-h", "--help", "help"}:
        (sys.stdout if argv else sys.stderr).write(_usage())
        return 0 if argv else 2
    if argv[0] in {"-V", "--version"}:
        sys.stdout.write(f"hark {__version__}\n")
        return 0
    verb = _find(argv[0])
    if verb is None:
        sys.stderr.write(f"hark: error: no verb named {argv[0]!r}\n")
        sys.stderr.write("hark: hint: `hark --help` lists them\n")
        return 2
    args = parser_for(verb).parse_args(_modern(verb, argv[1:]))
    return int(importlib.import_module(f"hark.cli.{verb.name}").run(args))


def _failed(argv: list[str], code: int) -> int:
    """Return the exit status for an error whose own is ``code``."""
    verb = _find(argv[0]) if argv else None
    return verb.status(code) if verb is not None else code


def _fill_closed_streams() -> None:
    """Open /dev/null where a standard stream is closed.

    Else the next file to be opened, the bundle or a socket, would become that stream.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    sys.stdin = sys.stdin or os.fdopen(0, "r", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def main(argv: list[str] | None = None) -> int:
    """Run one verb; return its exit code."""
    _fill_closed_streams()
    argv = sys.argv[1:] if argv is None else argv
    try:
        try:
            return _dispatch(argv)
        finally:
            sys.stdout.flush()
    except HarkError as error:
        tell(error.lines())
        return _failed(argv, error.exit_code)
    except SystemExit as error:  # argparse has said why
        raise SystemExit(_failed(argv, int(error.code or 0))) from None
    except BrokenPipeError:
        # The reader of our output went away, as `hark inspect | head` does: not an error.
        give_up(sys.stdout)
        return 0
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        give_up(sys.stdout)
        tell(HarkError("the output cannot be written", error.strerror or "").lines())
        return HarkError.exit_code
    except KeyboardInterrupt:
        return 130


def command() -> NoReturn:
    """Be the program. Taking the interpreter down in order would take longer than most verbs."""
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed, or its reader is gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    command()
