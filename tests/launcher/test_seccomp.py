"""The compiled filter, decided by an interpreter of our own: no kernel, no libseccomp."""

from __future__ import annotations

import errno
import platform
from typing import TYPE_CHECKING

import pytest

from hark.launcher import seccomp
from hark.locations import libexec
from launcher.cbpf import ALLOW, ERRNO, I386, KILL_PROCESS, decide

if TYPE_CHECKING:
    from pathlib import Path

if platform.machine() != "x86_64":
    pytest.skip("numbers of x86-64", allow_module_level=True)

BLOB = seccomp.compile_filter()
DIRECT = seccomp.prepend(seccomp.DIRECT, BLOB)
SOCKET, IOCTL, CLONE, PRCTL = 41, 16, 56, 157
SOCKETPAIR, SETRLIMIT, PRLIMIT64 = 53, 160, 302
HIGH = 1 << 32


@pytest.mark.parametrize(
    ("nr", "code"),
    [
        (425, errno.ENOSYS),  # io_uring_setup
        (435, errno.ENOSYS),  # clone3
        (447, errno.ENOSYS),  # memfd_secret
        (323, errno.ENOSYS),  # userfaultfd
        (335, errno.ENOSYS),  # uretprobe
        (336, errno.ENOSYS),
        (101, errno.EPERM),  # ptrace
        (272, errno.EPERM),  # unshare
        (308, errno.EPERM),  # setns
        (165, errno.EPERM),  # mount
        (428, errno.EPERM),  # open_tree
        (457, errno.EPERM),  # statmount
        (467, errno.EPERM),  # open_tree_attr
        (321, errno.EPERM),  # bpf
        (250, errno.EPERM),  # keyctl
        (438, errno.EPERM),  # pidfd_getfd
        (304, errno.EPERM),  # open_by_handle_at
        (246, errno.EPERM),  # kexec_load
    ],
)
def test_denied_calls(nr: int, code: int):
    assert decide(BLOB, nr) == ERRNO | code


@pytest.mark.parametrize(
    "nr",
    [
        0,
        1,
        39,
        57,
        59,
        202,
        228,
        231,
        257,
        281,
        302,
        318,
        319,
        332,
        334,
        424,
        439,
        441,
        444,
        446,
        449,
        452,
        462,
        468,
        469,
    ],
)
def test_ordinary_calls_are_allowed(nr: int):
    assert decide(BLOB, nr) == ALLOW


@pytest.mark.parametrize("nr", [337, 400, 423, 470, 471, 600, 0x3FFFFFFF, -1])
def test_unknown_numbers_do_not_exist(nr: int):
    assert decide(BLOB, nr) == ERRNO | errno.ENOSYS


@pytest.mark.parametrize(("nr", "arch"), [(1, I386), (359, I386), (470, I386), (1, 0xC00000B7)])
def test_foreign_architectures_are_killed(nr: int, arch: int):
    assert decide(BLOB, nr, arch=arch) == KILL_PROCESS


@pytest.mark.parametrize("nr", [0x40000000, 0x40000000 | SOCKET, 0x40000000 | 512, -2])
def test_x32_and_negative_numbers_are_killed(nr: int):
    assert decide(BLOB, nr) == KILL_PROCESS


@pytest.mark.parametrize("family", range(-2, 70))
@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF << 32])
def test_socket_families(family: int, high: int):
    got = decide(BLOB, SOCKET, ((family & 0xFFFFFFFF) | high, 1, 0))
    if family in (1, 2, 10, 16):
        assert got in (ALLOW, ERRNO | errno.EAFNOSUPPORT)
        assert high or got == ALLOW
    else:
        assert got == ERRNO | errno.EAFNOSUPPORT


@pytest.mark.parametrize("high", [0, HIGH])
@pytest.mark.parametrize("flags", [0, 0o2000000, 0o4000])
def test_socket_types_and_protocols(high: int, flags: int):
    refused = ERRNO | errno.EPERM
    for family in (2, 10):
        for kind in (3, 4, 10):
            assert decide(BLOB, SOCKET, (family, kind | flags | high, 0)) == refused
        assert decide(BLOB, SOCKET, (family, 1 | flags, 6)) == ALLOW
        assert decide(BLOB, SOCKET, (family, 2 | flags, 17)) == ALLOW
        mptcp = decide(BLOB, SOCKET, (family, 1 | flags, 262 | high))
        assert mptcp == ERRNO | errno.EPROTONOSUPPORT
        for kind in (5, 6):  # SCTP, DCCP
            assert decide(BLOB, SOCKET, (family, kind | flags | high, 0)) == refused
        for protocol in (33, 115, 132, 136, 255, 256):  # DCCP L2TP SCTP UDP-Lite raw SMC
            got = decide(BLOB, SOCKET, (family, 2 | flags, protocol | high))
            assert got == ERRNO | errno.EPROTONOSUPPORT
    for protocol in range(1, 33):
        assert decide(BLOB, SOCKET, (16, 3 | flags, protocol | high)) == refused
    assert decide(BLOB, SOCKET, (16, 3 | flags, 0)) == ALLOW


@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF << 32])
def test_masked_arguments(high: int):
    refused = ERRNO | errno.EPERM
    for request in (0x5412, 0x541C, 0x5423):
        assert decide(BLOB, IOCTL, (0, request | high)) == refused
    assert decide(BLOB, IOCTL, (0, 0x5413 | high)) == ALLOW
    assert decide(BLOB, PRCTL, (35 | high,)) == refused
    assert decide(BLOB, PRCTL, (38 | high,)) == ALLOW
    for flag in (
        0x00020000,
        0x02000000,
        0x04000000,
        0x08000000,
        0x10000000,
        0x20000000,
        0x40000000,
    ):
        assert decide(BLOB, CLONE, (flag | 17 | high,)) == refused
        assert decide(BLOB, CLONE, (flag | 0x3D0F00 | high,)) == refused
    assert decide(BLOB, CLONE, (0x3D0F00,)) == ALLOW  # pthread_create


def test_every_rule_is_in_force_and_named():
    assert len(seccomp.digest()) == 16
    assert seccomp.digest() != seccomp.digest(seccomp.DENY[1:])
    assert all(rule.reason for rule in seccomp.DENY)
    assert seccomp.compile_filter() == BLOB


def test_the_built_program_is_used_only_when_it_is_of_these_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(seccomp, "libexec", lambda name: tmp_path / name)
    compiled = []
    monkeypatch.setattr(seccomp, "compile_filter", lambda: compiled.append(1) or BLOB)
    file = tmp_path / seccomp.BUILT
    good = seccomp.built()
    compiled.clear()
    file.write_bytes(good)
    assert (seccomp.load_filter(), compiled) == (BLOB, [])
    for bad in (None, b"", good[:-8], good + bytes(8), bytes(16) + good[16:]):
        file.unlink(missing_ok=True)
        if bad is not None:
            file.write_bytes(bad)
        assert (seccomp.load_filter(), compiled.pop()) == (BLOB, 1)


def test_what_make_build_wrote_is_what_would_be_compiled():
    file = libexec(seccomp.BUILT)
    assert file.read_bytes() == seccomp.built()
    assert seccomp.load_filter() == BLOB


@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF << 32])
def test_pairs_are_of_unix_sockets_alone(high: int):
    assert decide(BLOB, SOCKETPAIR, (1, 1, 0)) == ALLOW
    for family in (0, 2, 10, 16, 17, 21, 30, 40, 43):
        assert decide(BLOB, SOCKETPAIR, (family | high, 1, 0)) == ERRNO | errno.EAFNOSUPPORT


@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF << 32])
def test_the_core_limit_stays_and_nobody_is_told(high: int):
    assert decide(BLOB, SETRLIMIT, (4 | high, 0x7000)) == ERRNO | 0
    assert decide(BLOB, PRLIMIT64, (0, 4 | high, 0x7000)) == ERRNO | 0
    assert decide(BLOB, PRLIMIT64, (0, 4 | high, 1 << 32)) == ERRNO | 0
    assert decide(BLOB, PRLIMIT64, (0, 4 | high, 0, 0x7000)) == ALLOW  # reading it
    assert decide(BLOB, PRLIMIT64, (0, 7 | high, 0x7000)) == ALLOW


@pytest.mark.parametrize("high", [0, HIGH, 0xFFFFFFFF << 32])
@pytest.mark.parametrize("bit", [0o4000, 0o2000, 0o6000])
def test_set_id_bits_are_refused_where_the_host_would_see_them(bit: int, high: int):
    for nr, before in ((90, 1), (91, 1), (268, 2), (452, 2), (85, 1), (133, 1), (259, 2)):
        args = (0,) * before
        assert decide(DIRECT, nr, (*args, bit | 0o755 | high)) == ERRNO | errno.EPERM
        assert decide(DIRECT, nr, (*args, 0o1777 | high)) == ALLOW
        assert decide(BLOB, nr, (*args, bit | 0o755 | high)) == ALLOW  # an overlay's are stripped
    for nr, args in ((2, (0,)), (257, (0, 0))):
        for flag in (0o100, 0o20200000):  # O_CREAT, O_TMPFILE
            assert decide(DIRECT, nr, (*args, flag | 1 | high, bit | high)) == ERRNO | errno.EPERM
        assert decide(DIRECT, nr, (*args, 1 | high, bit | high)) == ALLOW  # no mode is read
        assert decide(DIRECT, nr, (*args, 0o101 | high, 0o666 | high)) == ALLOW


def test_what_else_a_direct_workspace_takes_away():
    assert decide(DIRECT, 437) == ERRNO | errno.ENOSYS  # openat2
    assert decide(DIRECT, SOCKET, (1, 1, 0)) == ERRNO | errno.EAFNOSUPPORT
    assert decide(DIRECT, SOCKET, (1 | HIGH, 1, 0)) == ERRNO | errno.EAFNOSUPPORT
    assert decide(DIRECT, SOCKETPAIR, (1, 1, 0)) == ALLOW


@pytest.mark.parametrize("arch", [I386, 0xC00000B7])
def test_rules_in_front_leave_the_program_behind_them_as_it_is(arch: int):
    assert decide(DIRECT, SOCKET, (1, 1, 0), arch=arch) == KILL_PROCESS
    assert decide(DIRECT, 0x40000000 | 90, (0, 0o4755)) == KILL_PROCESS
    for nr in range(480):
        if nr not in {2, 41, 85, 90, 91, 133, 257, 259, 268, 437, 452}:
            assert decide(DIRECT, nr) == decide(BLOB, nr)
    for rule in (seccomp.Deny("chmod", 1), seccomp.Deny(1, 1, (seccomp.Condition(0, 0, 1, True),))):
        with pytest.raises(ValueError, match="prepend"):
            seccomp.prepend((rule,), BLOB)


def test_a_listener_gets_its_call_and_nothing_else_changes():
    base = seccomp.compile_filter()
    listened = seccomp.listen(base)
    getrandom, user_notif = 318, 0x7FC00000
    assert decide(listened, getrandom) == user_notif
    assert decide(listened, getrandom, (1, 2, 3, 4, 5, 6)) == user_notif
    for nr in (*range(-1, 600), 0x40000000 | getrandom):
        if nr != getrandom:
            assert decide(listened, nr) == decide(base, nr), nr
    for nr in (getrandom, 0, 355):  # 355: getrandom of i386
        foreign = decide(listened, nr, arch=I386)
        assert foreign == decide(base, nr, arch=I386) == KILL_PROCESS


def test_several_calls_can_be_listened_to():
    base = seccomp.compile_filter()
    calls = tuple(seccomp.Notify(nr, str(nr)) for nr in (318, 0, 35))
    listened = seccomp.listen(base, calls)
    for nr in range(450):
        wanted = 0x7FC00000 if nr in (318, 0, 35) else decide(base, nr)
        assert decide(listened, nr) == wanted, nr
