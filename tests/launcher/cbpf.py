"""A classic-BPF interpreter for seccomp programs, independent of libseccomp and of the kernel.

``struct sock_filter`` is {u16 code, u8 jt, u8 jf, u32 k}; the packet is ``struct seccomp_data``:
{i32 nr, u32 arch, u64 ip, u64 args[6]}. Linux, Documentation/networking/filter.rst.
"""

from __future__ import annotations

import struct

KILL_PROCESS = 0x80000000
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
X86_64 = 0xC000003E
I386 = 0x40000003


def decide(blob: bytes, nr: int, args: tuple[int, ...] = (), arch: int = X86_64) -> int:
    """The program's return value for one system call."""
    data = struct.pack("=iIQ6Q", nr, arch, 0, *(*args, *(0,) * (6 - len(args))))
    program = list(struct.iter_unpack("=HBBI", blob))
    acc, at = 0, 0
    for _ in range(len(program) + 1):
        code, jt, jf, k = program[at]
        at += 1
        if code == 0x20:  # LD W ABS
            (acc,) = struct.unpack_from("=I", data, k)
        elif code == 0x54:  # AND K
            acc &= k
        elif code == 0x05:  # JA
            at += k
        elif code in (0x15, 0x25, 0x35, 0x45):  # JEQ JGT JGE JSET
            hit = {0x15: acc == k, 0x25: acc > k, 0x35: acc >= k, 0x45: bool(acc & k)}[code]
            at += jt if hit else jf
        elif code == 0x06:  # RET K
            return k
        else:
            raise AssertionError(f"unknown instruction {code:#x}")
    raise AssertionError("a jump backwards")
