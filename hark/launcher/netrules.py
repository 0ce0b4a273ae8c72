"""The packet rules of one run, put into its namespace M.

libnftables runs inside this process, in a thread that enters the namespace: no child, no ``nft``
binary, and the rules stay readable in ``rules.nft``.
"""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

from hark.errors import KernelUnsupported, LaunchError

__all__ = ["RULES", "apply", "read_back"]

RULES = Path(__file__).with_name("rules.nft")
_CLONE_NEWNET = 0x40000000


def apply(netns_fd: int) -> None:
    """Put the rules into the network namespace. Raises ``LaunchError`` when nftables refuses."""
    text = RULES.read_text()
    _in_namespace(netns_fd, text)


def read_back(netns_fd: int) -> str:
    """Return the rules that are in force there, as nftables prints them."""
    return _in_namespace(netns_fd, "list ruleset")


def _in_namespace(netns_fd: int, command: str) -> str:
    """Run one nft command in a thread of its own: setns changes only the calling thread."""
    result: list[str | BaseException] = []

    def work() -> None:
        try:
            result.append(_run(netns_fd, command))
        except Exception as exc:  # noqa: BLE001 - handed to the caller's thread
            result.append(exc)

    thread = threading.Thread(target=work, name="hark-nft")
    thread.start()
    thread.join()
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


def _run(netns_fd: int, command: str) -> str:
    try:
        import nftables  # noqa: PLC0415 - Debian's binding: loaded only where a run is started
    except ImportError as exc:
        raise KernelUnsupported(
            "the packet rules cannot be set",
            str(exc),
            "apt-get install python3-nftables, and run hark with Debian's Python",
        ) from exc
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(netns_fd, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise LaunchError("the run's network namespace cannot be entered", os.strerror(code))
    code, output, error = nftables.Nftables().cmd(command)
    if code != 0:
        raise LaunchError(
            "the packet rules cannot be set",
            str(error).strip(),
            "does the kernel have nf_tables with TPROXY and nflog? see hark doctor",
        )
    return str(output)
