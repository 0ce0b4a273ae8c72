"""``hark run``: one contained, mediated, recorded run."""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from hark import limits
from hark.cli import printable
from hark.errors import InputError

if TYPE_CHECKING:
    from hark.recorder.ahead import Ahead
    from hark.recorder.inputs import RunResult
    from hark.recorder.prepare import Prepared

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
    add(
        "--limit",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="overrides a limit of the policy, such as memory=2G or time=30m",
    )
    add(
        "--publish",
        metavar="[HOST_PORT:]PORT",
        action="append",
        default=[],
        help="have HOST_PORT of this host's loopback lead to PORT of the agent",
    )
    tty = parser.add_mutually_exclusive_group()
    tty.add_argument(
        "--tty",
        dest="tty",
        action="store_true",
        default=None,
        help="give the agent a terminal of its own",
    )
    tty.add_argument("--no-tty", dest="tty", action="store_false", help="pipes, also on a terminal")
    add(
        "--det",
        choices=["auto", "light", "off"],
        default="auto",
        help="light: a replay has the same random numbers; auto: light where the kernel can",
    )
    add("--dry-run", action="store_true", help="print what would be done, and do nothing")
    add(
        "--explain-paths",
        action="store_true",
        help="print which paths the command is granted, and why",
    )
    add("-q", "--quiet", action="store_true", help="say nothing about a run that went well")
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


def parse_publish(text: str) -> tuple[int, int]:
    """Read ``[HOST_PORT:]PORT``: the host's port and the agent's."""
    outside, _, inside = text.rpartition(":")
    try:
        port = int(inside)
        host_port = int(outside or inside)
    except ValueError:
        raise InputError(f"--publish {text}: not [HOST_PORT:]PORT", "", "such as 8080") from None
    if not 0 < port < 1 << 16 or not limits.PUBLISHED_PORT_LEAST <= host_port < 1 << 16:
        least = limits.PUBLISHED_PORT_LEAST
        raise InputError(
            f"--publish {text}: no such port",
            f"the host's may be {least} to 65535",
            f"--publish 8080:{inside}",
        )
    return host_port, port


def parse_all_published(texts: list[str]) -> tuple[tuple[int, int], ...]:
    """Read every --publish; the host's ports must differ."""
    published = tuple(parse_publish(text) for text in texts)
    ports = [host_port for host_port, _ in published]
    if twice := {port for port in ports if ports.count(port) > 1}:
        raise InputError(f"--publish names port {min(twice)} of this host twice")
    return published


def agent_command(words: list[str]) -> tuple[bytes, ...]:
    """Return the agent's argv, as bytes; a leading ``--`` is the separator."""
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise InputError("no command to run", "", "hark run [options] -- COMMAND [ARGUMENT...]")
    return tuple(os.fsencode(word) for word in command)


def run(args: argparse.Namespace) -> int:
    """Run the command; return its status, or 125 when hark failed."""
    args.command = agent_command(args.command)
    args.publish = parse_all_published(args.publish)
    args.upstream = tuple(parse_upstream(text) for text in args.upstream)
    from hark.recorder.ahead import Ahead  # noqa: PLC0415 - when the arguments are good

    if args.dry_run or args.explain_paths:
        return explain(args)
    with ExitStack() as undo:
        ahead = Ahead()
        undo.callback(ahead.abandon)
        prepared = prepare(args, ahead)
        from hark.recorder import parties  # noqa: PLC0415 - the run is decided

        begun = parties.begin(prepared, ahead)
        undo.pop_all()
    from hark.recorder import startup  # noqa: PLC0415 - while its parties start

    if not args.quiet:
        printable.tell([f"hark: warning: {text}" for text in prepared.paths.absent])
    started = time.monotonic()
    result = startup.record(prepared, begun=begun)
    tell(result, time.monotonic() - started, quiet=args.quiet)
    return result.exit_code


def prepare(args: argparse.Namespace, ahead: Ahead | None) -> Prepared:
    """Decide the run."""
    from hark.policy.model import Determinism  # noqa: PLC0415 - as below
    from hark.recorder import prepare as room  # noqa: PLC0415 - while the kernel is probed

    options = room.RunOptions(
        command=args.command,
        policy=Path(args.policy) if args.policy else None,
        out=Path(args.out) if args.out else None,
        person=args.person,
        workspace=args.workspace,
        key=Path(args.key) if args.key else None,
        upstream=args.upstream,
        upstream_ca=Path(args.upstream_ca) if args.upstream_ca else None,
        publish=args.publish,
        tty=args.tty,
        limits=tuple(args.limit),
        determinism=None if args.det == "auto" else Determinism(args.det),
    )
    return room.prepare(options, ahead=ahead)


def explain(args: argparse.Namespace) -> int:
    """Print what would be done."""
    prepared = prepare(args, None)
    from hark.recorder import startup  # noqa: PLC0415 - only now

    show = startup.explain if args.dry_run else startup.explain_paths
    sys.stdout.write("".join(f"{line}\n" for line in show(prepared)))
    return 0


def tell(result: RunResult, seconds: float, *, quiet: bool) -> None:
    """Say on stderr how the run went: errors, refusals, one line with the bundle and its totals.

    ``quiet``: errors alone.
    """
    lines = list(result.errors if quiet else result.lines)
    if not quiet:
        counts = f"{_count(result.exchanges, 'exchange')}, {result.denied} denied"
        if result.published:
            lines.append(f"hark: recorded {result.path}  ({counts}, {seconds:.1f} s)")
    printable.tell(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
