"""The agent's system-call filter, compiled to a BPF program by libseccomp.

A deny list: what breaks containment or attribution is refused, programs keep working. Refusals are
the errnos programs expect: ENOSYS where they probe and fall back, EPERM elsewhere, EAFNOSUPPORT
for socket families. Numbers that this list does not know are ENOSYS, so a new system call of a
newer kernel is not open by accident; calls of a foreign architecture kill the process.

Arguments are compared in their low 32 bits only, as the kernel reads them: a compare of all 64
would miss ``TIOCSTI | 1 << 32``. Only ``greater`` looks at all 64, which refuses more, never less.

``DIRECT`` comes on top where the workspace is the host's own folder. There a setuid bit would be in
force on the host, and a socket that a program of the host has bound could be called.
"""

from __future__ import annotations

import errno
import struct
import sys
from dataclasses import dataclass

from blake3 import blake3

from hark.errors import KernelUnsupported
from hark.locations import libexec

__all__ = [
    "DENY",
    "DIRECT",
    "NOTIFY",
    "Condition",
    "Deny",
    "compile_filter",
    "digest",
    "listen",
    "load_filter",
    "prepend",
]

BUILT = "seccomp.bin"  # in libexec: the digest of its rules and of its program, then the program
_DIGEST = 16

_ARCH = 0xC000003E  # AUDIT_ARCH_X86_64
_X32_BIT = 0x40000000
_LOW32 = 0xFFFFFFFF
_USER_NOTIF = 0x7FC00000  # SECCOMP_RET_USER_NOTIF

# x86-64 of Linux 6.18. The generic numbers from 424 on are the same on all architectures.
LAST_KNOWN = 469  # file_setattr
HOLE = (337, 423)  # never assigned on x86-64

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
_AF_MAX = 47
_CLONE_NEW = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_TIOCSTI, _TIOCSETD, _TIOCLINUX = 0x5412, 0x5423, 0x541C
_PR_SET_MM = 35
_SOCK_RAW, _SOCK_RDM, _SOCK_SEQPACKET, _SOCK_DCCP, _SOCK_PACKET = 3, 4, 5, 6, 10
_SOCK_TYPE_MASK = 0xF
_IPPROTO_UDP = 17
_RLIMIT_CORE = 4
_S_ISUID_ISGID = (0o4000, 0o2000)
_O_CREAT, _O_TMPFILE = 0o100, 0o20000000


@dataclass(frozen=True, slots=True)
class Condition:
    """``(argument & mask) == value``, or ``argument > value`` when ``greater``."""

    argument: int
    mask: int
    value: int
    greater: bool = False


@dataclass(frozen=True, slots=True)
class Deny:
    """One refusal: a system call by name (or number, where libseccomp is older), an errno."""

    call: str | int
    errno: int
    when: tuple[Condition, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Notify:
    """One call, by number, that is handed to whoever holds the filter's listener."""

    call: int
    name: str


def _all(calls: str, code: int, reason: str) -> tuple[Deny, ...]:
    return tuple(Deny(call, code, (), reason) for call in calls.split())


def _is(argument: int, value: int, mask: int = _LOW32) -> Condition:
    return Condition(argument, mask, value)


def _families() -> tuple[Deny, ...]:
    allowed = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK}
    no = errno.EAFNOSUPPORT
    out = [
        Deny("socket", no, (_is(0, family),), "socket family")
        for family in range(_AF_MAX + 1)
        if family not in allowed
    ]
    out.append(Deny("socket", no, (Condition(0, 0, _AF_MAX, greater=True),), "socket family"))
    # Of netlink only NETLINK_ROUTE, 0, which getifaddrs needs.
    route = (_is(0, AF_NETLINK), Condition(2, 0, 0, greater=True))
    out.append(Deny("socket", errno.EPERM, route, "netlink protocol"))
    for family in (AF_INET, AF_INET6):
        out += [
            Deny("socket", errno.EPERM, (_is(0, family), _is(1, kind, _SOCK_TYPE_MASK)), "raw")
            for kind in (_SOCK_RAW, _SOCK_RDM, _SOCK_SEQPACKET, _SOCK_DCCP, _SOCK_PACKET)
        ]
        # SCTP, DCCP, UDP-Lite, L2TP, SMC, MPTCP: nobody mediates them, and asking for one may
        # load its module.
        other = (_is(0, family), Condition(2, 0, _IPPROTO_UDP, greater=True))
        out.append(Deny("socket", errno.EPROTONOSUPPORT, other, "neither TCP nor UDP"))
    # socketpair makes two sockets of its family before it says that the family has no pairs.
    pairs = (_is(0, 0), Condition(0, 0, AF_UNIX, greater=True))
    out += [Deny("socketpair", no, (pair,), "socket family") for pair in pairs]
    return tuple(out)


def _core_limit() -> tuple[Deny, ...]:
    """Lowering the core limit from 1 to 0 would let a crash start the host's core program.

    Programs that switch core files off (ssh-agent, gpg) take a refusal for fatal: they are told
    that it is done, which it is.
    """
    new = Condition(2, 0, 0, greater=True)
    reason = "no core program of the host"
    return (
        Deny("setrlimit", 0, (_is(0, _RLIMIT_CORE),), reason),
        Deny("prlimit64", 0, (_is(1, _RLIMIT_CORE), new), reason),
    )


def _set_id_modes() -> tuple[Deny, ...]:
    """Every call that can give a file the setuid or setgid bit, by number."""
    chmod, fchmod, fchmodat, fchmodat2, creat, mknod, mknodat = 90, 91, 268, 452, 85, 133, 259
    modes = {chmod: 1, fchmod: 1, fchmodat: 2, fchmodat2: 2, creat: 1, mknod: 1, mknodat: 2}
    opening = {2: (1, 2), 257: (2, 3)}  # open, openat: their flags and mode
    reason = "a set-id bit on the host's own file"
    out = []
    for bit in _S_ISUID_ISGID:
        out += [Deny(c, errno.EPERM, (_is(a, bit, bit),), reason) for c, a in modes.items()]
        out += [
            Deny(c, errno.EPERM, (_is(flags, new, new), _is(mode, bit, bit)), reason)
            for c, (flags, mode) in opening.items()
            for new in (_O_CREAT, _O_TMPFILE)
        ]
    return (*out, Deny(437, errno.ENOSYS, (), "openat2: a filter cannot read its mode"))


DENY: tuple[Deny, ...] = (
    *_all(
        "io_uring_setup io_uring_enter io_uring_register userfaultfd memfd_secret fanotify_init",
        errno.ENOSYS,
        "large kernel surface; programs fall back",
    ),
    Deny("clone3", errno.ENOSYS, (), "its flags cannot be read by a filter; libc uses clone"),
    Deny(335, errno.ENOSYS, (), "uretprobe"),
    Deny(336, errno.ENOSYS, (), "uprobe"),
    *_all(
        "unshare setns mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig "
        "fsmount fspick mount_setattr",
        errno.EPERM,
        "namespaces and mounts",
    ),
    Deny(457, errno.EPERM, (), "statmount"),
    Deny(458, errno.EPERM, (), "listmount"),
    Deny(467, errno.EPERM, (), "open_tree_attr"),
    *(Deny("clone", errno.EPERM, (_is(0, f, f),), "new namespace") for f in _CLONE_NEW),
    *_all(
        "ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp",
        errno.EPERM,
        "other processes",
    ),
    *_all("bpf perf_event_open", errno.EPERM, "kernel programs"),
    *_all("keyctl add_key request_key", errno.EPERM, "keyrings are not namespaced"),
    *_all(
        "kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff "
        "acct quotactl quotactl_fd iopl ioperm modify_ldt syslog vhangup lookup_dcookie ustat "
        "sysfs uselib nfsservctl create_module get_kernel_syms query_module _sysctl",
        errno.EPERM,
        "host administration",
    ),
    *_all(
        "sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex",
        errno.EPERM,
        "host clock and name",
    ),
    *_all("name_to_handle_at open_by_handle_at fanotify_mark", errno.EPERM, "files by handle"),
    *_all("move_pages migrate_pages set_mempolicy_home_node", errno.EPERM, "memory placement"),
    Deny("ioctl", errno.EPERM, (_is(1, _TIOCSTI),), "TIOCSTI"),
    Deny("ioctl", errno.EPERM, (_is(1, _TIOCLINUX),), "TIOCLINUX"),
    Deny("ioctl", errno.EPERM, (_is(1, _TIOCSETD),), "TIOCSETD"),
    Deny("prctl", errno.EPERM, (_is(0, _PR_SET_MM),), "PR_SET_MM"),
    *_core_limit(),
    *_families(),
)

DIRECT: tuple[Deny, ...] = (
    *_set_id_modes(),
    Deny(41, errno.EAFNOSUPPORT, (_is(0, AF_UNIX),), "socket: the host's own are in reach"),
)


# What hark-trace answers for the agent: calls whose answer must be the same in another execution.
NOTIFY: tuple[Notify, ...] = (Notify(318, "getrandom"),)


def digest(rules: tuple[Deny, ...] = DENY) -> bytes:
    """Name this rule list, 16 bytes; equal lists give equal programs for one libseccomp."""
    return blake3(repr((rules, LAST_KNOWN, HOLE)).encode()).digest(_DIGEST)


def load_filter() -> bytes:
    """Return the program that `make build` compiled, or compile it where that one is another's.

    The file lies beside hark-launch and is as trusted as it (``hark.launcher.trust``); the digests
    are against a build of older rules, not against an attacker.
    """
    try:
        data = libexec(BUILT).read_bytes()
    except OSError:
        return compile_filter()
    named, sealed, program = data[:_DIGEST], data[_DIGEST : 2 * _DIGEST], data[2 * _DIGEST :]
    if named != digest() or sealed != blake3(program).digest(_DIGEST):
        return compile_filter()
    return program


def built() -> bytes:
    """Return the file's bytes for ``load_filter``."""
    program = compile_filter()
    return digest() + blake3(program).digest(_DIGEST) + program


def compile_filter(rules: tuple[Deny, ...] = DENY) -> bytes:
    """Return the program as ``struct sock_filter[]``.

    Raises ``KernelUnsupported`` where libseccomp's Python binding is missing.
    """
    return _prologue() + _by_libseccomp(rules)


def _by_libseccomp(rules: tuple[Deny, ...]) -> bytes:
    try:
        import seccomp  # noqa: PLC0415 - Debian's binding: loaded only where a run is started
    except ImportError as exc:
        raise KernelUnsupported(
            "the system-call filter cannot be compiled",
            str(exc),
            "apt-get install python3-seccomp, and run hark with Debian's Python",
        ) from exc
    program = seccomp.SyscallFilter(seccomp.ALLOW)
    program.set_attr(seccomp.Attr.CTL_OPTIMIZE, 2)
    program.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)
    for rule in rules:
        number = rule.call
        if isinstance(number, str):
            number = seccomp.resolve_syscall(seccomp.Arch(), number)
            if number < 0:  # removed from this architecture long ago
                continue
        program.add_rule(seccomp.ERRNO(rule.errno), number, *_arguments(seccomp, rule.when))
    import tempfile  # noqa: PLC0415 - as above

    with tempfile.TemporaryFile() as out:
        program.export_bpf(out)
        out.seek(0)
        return out.read()


def _arguments(seccomp: object, conditions: tuple[Condition, ...]) -> list[object]:
    arg, masked, greater = (getattr(seccomp, n) for n in ("Arg", "MASKED_EQ", "GT"))
    return [
        arg(c.argument, greater, c.value) if c.greater else arg(c.argument, masked, c.mask, c.value)
        for c in conditions
    ]


def prepend(rules: tuple[Deny, ...], program: bytes) -> bytes:
    """Return ``program`` with these rules decided before it. Pure.

    Each rule names its call by number and compares masked arguments only; jumps lead forward, so
    the program behind stays as it is.
    """
    out = [step for rule in rules for step in _tests(rule)]
    skip = [(0x20, 0, 0, 4), (0x15, 1, 0, _ARCH), (0x05, 0, 0, len(out))]  # foreign: to program
    return b"".join(struct.pack("=HBBI", *step) for step in (*skip, *out)) + program


def listen(program: bytes, calls: tuple[Notify, ...] = NOTIFY) -> bytes:
    """Return ``program`` with ``calls`` handed to a listener before it decides. Pure.

    None of them may be in the deny list: this program's word comes first, and only once.
    """
    load, jeq = 0x20, 0x15
    out = [(load, 0, 0, 0)]
    for at, one in enumerate(calls):
        out.append((jeq, len(calls) - at, 0, one.call))
    over = (0x05, 0, 0, 1)  # none of them: behind the refusal
    steps = [(load, 0, 0, 4), (jeq, 0, len(out) + 2, _ARCH), *out, over, (0x06, 0, 0, _USER_NOTIF)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps) + program


def _tests(rule: Deny) -> list[tuple[int, int, int, int]]:
    """Load, compare, and refuse; a comparison that fails goes on behind the refusal."""
    load, mask, jeq = 0x20, 0x54, 0x15
    if not isinstance(rule.call, int) or any(c.greater for c in rule.when):
        raise ValueError("a rule to prepend has a number and masked arguments")
    left = 3 * len(rule.when)  # instructions between the first comparison and the refusal
    out = [(load, 0, 0, 0), (jeq, 0, left + 1, rule.call)]
    for c in rule.when:
        left -= 3
        out += [
            (load, 0, 0, 16 + 8 * c.argument),
            (mask, 0, 0, c.mask),
            (jeq, 0, left + 1, c.value),
        ]
    return [*out, (0x06, 0, 0, 0x00050000 | rule.errno)]


def _prologue() -> bytes:
    """Unknown numbers of the native architecture return ENOSYS; the rest falls through.

    libseccomp has no rule for a range of numbers, hence these few instructions before its own.
    x32 numbers go on to libseccomp's program, which kills them as a foreign architecture.
    """
    load_arch, load_nr = (0x20, 0, 0, 4), (0x20, 0, 0, 0)
    refuse = (0x06, 0, 0, 0x00050000 | errno.ENOSYS)
    jeq, jge, jgt = 0x15, 0x35, 0x25
    steps = [
        load_arch,
        (jeq, 0, 7, _ARCH),  # foreign: to the end
        load_nr,
        (jeq, 4, 0, _LOW32),  # -1: libseccomp lets it through
        (jge, 4, 0, _X32_BIT),  # x32: to the end
        (jgt, 2, 0, LAST_KNOWN),  # refuse
        (jge, 0, 2, HOLE[0]),  # below the hole: to the end
        (jgt, 1, 0, HOLE[1]),  # above it: to the end
        refuse,
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


if __name__ == "__main__":  # `make build`
    sys.stdout.buffer.write(built())
