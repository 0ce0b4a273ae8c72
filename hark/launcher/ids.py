"""Slots: the block of 65,536 kernel ids and the service ids of one run.

Slot N owns ids ``0x77400000 + N * 65536`` and following for the agent's tree, and
``0x77000000 + N * 16 + {0 recorder, 1 signer, 2 broker, 3 mediator, 4 tracer, 5 publisher}`` for
hark's own processes, 15 for the owner of its user namespaces.
A slot belongs to whoever holds the lock on its file below /run/hark/slots; hark-launch keeps that
lock until the run is cleaned up, so the kernel frees it whatever dies. A block in which the user
database already knows an id is never used.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hark.errors import LaunchError
from hark.launcher.ops import IdRange
from hark.locations import RUNTIME

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "AGENT_OF_ROOT",
    "BLOCK_IDS",
    "IdMaps",
    "Slot",
    "agent_ids",
    "claim_slot",
    "id_maps",
    "kernel_id",
    "stored_id",
]

BLOCK_BASE = 0x77400000
SERVICE_BASE = 0x77000000
BLOCK_IDS = 65536
SERVICE_IDS = 16
SLOTS = 512  # the last block ends below 0x79400000, far from 2^31 and from directory services
SLOT_DIR = RUNTIME / "slots"

# Inside id of the agent when the person is root: never 0, so that root's secrets on shared trees
# stay closed. 65534 is nobody; this one is free on every distribution's static list.
AGENT_OF_ROOT = 65533


@dataclass(frozen=True, slots=True)
class Slot:
    """One claimed slot. ``lock_fd`` holds the lock; -1 in values made for tests."""

    index: int
    lock_fd: int = -1

    @property
    def base(self) -> int:
        """First kernel id of the agent's block."""
        return BLOCK_BASE + self.index * BLOCK_IDS

    def _service(self, offset: int) -> int:
        return SERVICE_BASE + self.index * SERVICE_IDS + offset

    @property
    def recorder(self) -> int:
        """Kernel uid and gid of the recorder."""
        return self._service(0)

    @property
    def signer(self) -> int:
        """Kernel uid and gid of the signer."""
        return self._service(1)

    @property
    def broker(self) -> int:
        """Kernel uid and gid of the broker."""
        return self._service(2)

    @property
    def mediator(self) -> int:
        """Kernel uid and gid of the mediator."""
        return self._service(3)

    @property
    def tracer(self) -> int:
        """Kernel uid and gid of hark-trace."""
        return self._service(4)

    @property
    def publisher(self) -> int:
        """Kernel uid and gid of the publisher."""
        return self._service(5)

    @property
    def owner(self) -> int:
        """Kernel uid that owns the run's user namespaces; no process ever has it."""
        return self._service(15)


@dataclass(frozen=True, slots=True)
class IdMaps:
    """Id maps of one user namespace: inside id -> kernel id."""

    uids: tuple[IdRange, ...]
    gids: tuple[IdRange, ...]


def agent_ids(uid: int, gid: int) -> tuple[int, int]:
    """Return the ids the agent sees itself under: the person's own, but never 0."""
    return uid or AGENT_OF_ROOT, gid or AGENT_OF_ROOT


def kernel_id(base: int, inside: int) -> int:
    """Kernel id of an inside id: the last id of the block stands for one above 65535."""
    return base + min(inside, BLOCK_IDS - 1)


def stored_id(base: int, kernel: int, own: int) -> int:
    """Return what a layer stores for a kernel id of the block; ``own``: the person's."""
    inside = kernel - base
    return own if inside == min(own or AGENT_OF_ROOT, BLOCK_IDS - 1) else inside


def id_maps(base: int, uid: int, gid: int) -> tuple[IdMaps, IdMaps]:
    """Maps of the agent's namespace, and of the layers that hold the person's own files.

    They differ only for a person whose uid or gid is 0: on those layers the stored 0 and the
    agent's id change places, so root's files are the agent's own there and nowhere else.
    """
    agent = IdMaps(_block(base, uid or AGENT_OF_ROOT), _block(base, gid or AGENT_OF_ROOT))
    layers = IdMaps(agent.uids if uid else _swapped(base), agent.gids if gid else _swapped(base))
    return agent, layers


def _block(base: int, own: int) -> tuple[IdRange, ...]:
    if own < BLOCK_IDS:
        return (IdRange(0, base, BLOCK_IDS),)
    return (IdRange(0, base, BLOCK_IDS - 1), IdRange(own, base + BLOCK_IDS - 1, 1))


def _swapped(base: int) -> tuple[IdRange, ...]:
    own = AGENT_OF_ROOT
    return (
        IdRange(0, base + own, 1),
        IdRange(1, base + 1, own - 1),
        IdRange(own, base, 1),
        IdRange(own + 1, base + own + 1, BLOCK_IDS - own - 1),
    )


def nss_knows(first: int, count: int) -> bool:
    """Whether the user database lists or answers for an id of this range.

    The ends and middle are asked one by one, since a directory service may answer without listing.
    """
    for ident in (first, first + 1, first + count // 2, first + count - 1):
        for ask in (pwd.getpwuid, grp.getgrgid):
            try:
                ask(ident)
            except KeyError:
                continue
            return True
    listed = [p.pw_uid for p in pwd.getpwall()] + [g.gr_gid for g in grp.getgrall()]
    return any(first <= ident < first + count for ident in listed)


def claim_slot(folder: Path = SLOT_DIR, knows: Callable[[int, int], bool] = nss_knows) -> Slot:
    """Lock the first free slot. The folder is made when missing, root's alone.

    Raises ``LaunchError`` when all are taken or foreign ids stand in all of them.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for index in range(SLOTS):
        fd = os.open(folder / str(index), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            continue
        slot = Slot(index, fd)
        if not knows(slot.base, BLOCK_IDS) and not knows(slot.recorder, SERVICE_IDS):
            return slot
        os.close(fd)
    raise LaunchError(
        "no block of ids is free for this run",
        f"{SLOTS} slots are in use, or the user database has ids from {BLOCK_BASE:#x} on",
        "wait for other runs to end; see getent passwd",
    )
