"""``hark replay``: carry a recorded run out again, and say whether it did the same.

Exit status: 0 equal, 1 diverged (or the recording does not verify), 2 bad input, 125 hark failed.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from hark.cli.bundle_argument import add_bundle_argument, find_bundle
from hark.cli.verify import add_trust_arguments, trust_of
from hark.locations import RUNS

if TYPE_CHECKING:
    import argparse

    from hark.replay.rules import Rules

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``hark replay``."""
    add_bundle_argument(parser)
    add = parser.add_argument
    add("-o", "--out", metavar="FILE", help="keep the replay's own bundle here")
    add(
        "--workspace",
        choices=["start", "partial", "current"],
        default="start",
        help="the files as they were at the start (default); the same, but for those whose content"
        " is nowhere, which cannot be read then; or as they are now",
    )
    add("--strict", action="store_true", help="accept REPLAY-EQUAL exact alone")
    add("--quiet", action="store_true", help="do not show what the agent prints")
    add(
        "--json",
        action="store_true",
        help="print the verdict as JSON; the agent's output on stderr",
    )
    add(
        "--untrusted",
        action="store_true",
        help="replay a stranger's recording: folder, person and policy are yours",
    )
    add("--rules", metavar="FILE", help="volatile and telemetry rules of this policy, not its own")
    add("--policy", metavar="FILE", help="with --untrusted: what the agent may do")
    add(
        "--as",
        dest="person",
        metavar="USER",
        help="with --untrusted, or on another machine: whose files",
    )
    add("--sign-with", metavar="FILE", help="sign the replay's bundle with this key")
    add_trust_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Replay, print the verdict, return the exit status."""
    from hark.bundle.reader import Bundle  # noqa: PLC0415 - when the arguments are good
    from hark.policy.person import find_person  # noqa: PLC0415
    from hark.policy.privileges import acting_as  # noqa: PLC0415
    from hark.replay import parent, session  # noqa: PLC0415
    from hark.replay.startup import ReplayOptions  # noqa: PLC0415

    path = find_bundle(args.run)
    trust = trust_of(args)
    person = find_person(None, os.environb)
    # A run's own folder is root's; all other files are the person's to open. Read as the person.
    with nullcontext() if path.is_relative_to(RUNS) else acting_as(person):
        bundle = Bundle.open(path)
    with bundle:
        with acting_as(person):
            rules = _rules(args)
            recording = parent.load(bundle, trust, untrusted=args.untrusted, rules=rules)
        outcome = session.replay(
            recording,
            ReplayOptions(
                out=Path(args.out) if args.out else None,
                key=Path(args.sign_with) if args.sign_with else None,
                workspace=args.workspace,
                untrusted=args.untrusted,
                policy=Path(args.policy) if args.policy else None,
                person=args.person,
            ),
            os.environb,
            _outputs(args),
        )
    if args.json:
        print(json.dumps(outcome.to_json(), ensure_ascii=True))
    else:
        print("\n".join(outcome.lines()))
    if outcome.result.published and args.out:
        sys.stderr.write(f"hark: recorded {outcome.result.path}\n")
    return 0 if outcome.holds(strict=args.strict) else 1


def _rules(args: argparse.Namespace) -> Rules | None:
    """Return what is not compared: the operator's word before the recording's."""
    from hark.policy.layers import read_policy  # noqa: PLC0415 - when it is needed
    from hark.replay.rules import BUILTIN  # noqa: PLC0415

    chosen = args.rules or (args.policy if args.untrusted else None)
    if chosen is not None:
        return BUILTIN.with_policy(read_policy(Path(chosen)))
    return BUILTIN if args.untrusted else None


def _outputs(args: argparse.Namespace) -> tuple[int, int]:
    """Return where the agent's stdout and stderr are shown."""
    sys.stdout.flush()
    if args.quiet:
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        return null, null
    return (2, 2) if args.json else (1, 2)
