"""The table of names against libseccomp's, which has its own source."""

from __future__ import annotations

import pytest

from hark.kernel import syscalls

seccomp = pytest.importorskip("seccomp", reason="python3-seccomp is not installed")


def test_names_agree_with_libseccomp():
    agreed = 0
    for nr in range(500):
        try:
            theirs = seccomp.resolve_syscall(seccomp.Arch.X86_64, nr)
        except ValueError:
            continue
        theirs = theirs.decode() if isinstance(theirs, bytes) else theirs
        assert syscalls.name(nr) == theirs
        assert syscalls.number(theirs) == nr
        agreed += 1
    assert agreed > 300


def test_what_has_no_name():
    assert syscalls.name(400) == "syscall 400"
    assert syscalls.name(syscalls.OTHER) == "unknown numbers"
    assert syscalls.name(syscalls.IA32 | 64) == "i386 64"
    assert syscalls.number("no_such_call") is None
