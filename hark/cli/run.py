"""``hark run``: one contained, mediated, recorded run."""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from pathlib import Path

from hark.cli.printable import tell
from hark.errors import InputError

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options; the agent's command stands after ``--``."""
    parser.usage = "hark run [options] -- COMMAND [ARGUMENT...]"
    add = parser.add_argument
    add("--policy", metavar="FILE", help="policy (TOML); without one nothing is allowed")
    add("-o", "--out", metavar="FILE", help="where the bundle goes; default ./run-ULID.hark")
    add(
        "--as",
        dest="person",
        metavar="USER",
        help="whose files and environment; default: who called sudo",
    )
    add("--workspace", choices=["overlay", "direct"], help="overrides the policy's workspace mode")
    add("--key", metavar="FILE", help="sign with this key instead of the host's")
    add(
        "--upstream",
        metavar="HOST=IP:PORT",
        action="append",
        default=[],
        help="dial this address for HOST; the name that is checked stays HOST",
    )
    add("--upstream-ca", metavar="FILE", help="trust these roots for the --upstream hosts alone")
    tty = parser.add_mutually_exclusive_group()
    tty.add_argument(
        "--tty",
        dest="tty",
        action="store_true",
        default=None,
        help="give the agent a terminal of its own",
    )
    tty.add_argument("--no-tty", dest="tty", action="store_false", help="pipes, also on a terminal")
    add("--dry-run", action="store_true", help="print what would be done, and do nothing")
    add(
        "--explain-paths",
        action="store_true",
        help="print which paths the command is granted, and why",
    )
    add("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the agent")


def parse_upstream(text: str) -> tuple[str, bytes, int]:
    """Read ``HOST=IP:PORT`` or ``HOST=[IPv6]:PORT``: name, 4 or 16 address bytes, port."""
    host, _, target = text.partition("=")
    address, _, port = target.rpartition(":")
    try:
        packed = ipaddress.ip_address(address.removeprefix("[").removesuffix("]")).packed
        number = int(port)
    except ValueError as error:
        raise InputError(
            f"--upstream {text}: not HOST=IP:PORT",
            str(error),
            "for example api.example=127.0.0.1:8443",
        ) from error
    if not host or not 0 < number < 1 << 16:
        raise InputError(f"--upstream {text}: not HOST=IP:PORT", "no host, or no such port")
    return host, packed, number


def agent_command(words: list[str]) -> tuple[bytes, ...]:
    """Return the agent's argv, as bytes; a leading ``--`` is the separator."""
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise InputError("no command to run", "", "hark run [options] -- COMMAND [ARGUMENT...]")
    return tuple(os.fsencode(word) for word in command)


def run(args: argparse.Namespace) -> int:
    """Run the command; return its status, or 125 when hark failed."""
    from hark.recorder import prepare, startup  # noqa: PLC0415 - when the arguments are good

    prepared = prepare.prepare(
        prepare.RunOptions(
            command=agent_command(args.command),
            policy=Path(args.policy) if args.policy else None,
            out=Path(args.out) if args.out else None,
            person=args.person,
            workspace=args.workspace,
            key=Path(args.key) if args.key else None,
            upstream=tuple(parse_upstream(text) for text in args.upstream),
            upstream_ca=Path(args.upstream_ca) if args.upstream_ca else None,
            tty=args.tty,
        )
    )
    if args.dry_run or args.explain_paths:
        explain = startup.explain if args.dry_run else startup.explain_paths
        sys.stdout.write("".join(f"{line}\n" for line in explain(prepared)))
        return 0
    result = startup.record(prepared)
    tell(result.lines)
    if result.published:
        tell([f"hark: recorded {result.path}"])
    return result.exit_code
