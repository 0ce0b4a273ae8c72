"""Attacks, each a function that returns something true when it worked and raises when it did not.

This file runs inside the sandbox and, as the control, outside it. It imports only the standard
library and is run as ``python3 -I -S probes.py CONTEXT.json``; it prints one JSON object.
"""

# ruff: noqa: PTH208
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
C: dict[str, object] = {}
NEWUSER, NEWNS, NEWNET = 0x10000000, 0x00020000, 0x40000000


def call(number: int, *args: object) -> int:
    ctypes.set_errno(0)
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = LIBC.syscall(ctypes.c_long(number), *words)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def unix(path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(3)
        s.connect(path)
        return s.recv(6)


def tcp(host: str, port: int) -> bytes:
    with socket.create_connection((host, port), 3) as s:
        return s.recv(6)


# --- sockets of the host
def abstract_socket():
    return unix("\0" + str(C["abstract"])) == b"SECRET"


def path_socket_in_run():
    return unix(str(C["run_socket"])) == b"SECRET"


def path_socket_in_granted_folder():
    return unix(str(C["granted_socket"])) == b"SECRET"


def path_socket_in_workspace():
    return unix(str(C["workspace_socket"])) == b"SECRET"


def host_loopback():
    return tcp("127.0.0.1", C["port"]) == b"SECRET"


def host_loopback_v6():
    return tcp("::1", C["port6"]) == b"SECRET"


def host_address():
    return tcp(str(C["host_address"]), C["port"]) == b"SECRET"


def host_udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        s.connect((str(C["host_address"]), C["udp_port"]))
        s.send(b"x")
        return s.recv(6) == b"SECRET"


# --- other processes
def read_environ_of_victim():
    return b"VICTIM" in Path(f"/proc/{C['victim']}/environ").read_bytes()


def read_memory_of_victim():
    buf = ctypes.create_string_buffer(6)
    local = struct.pack("QQ", ctypes.addressof(buf), 6)
    remote = struct.pack("QQ", C["victim_address"], 6)
    call(310, C["victim"], local, 1, remote, 1, 0)
    return buf.raw == b"SECRET"


def ptrace_victim():
    call(101, 16, C["victim"], 0, 0)  # PTRACE_ATTACH
    os.waitpid(C["victim"], 0)
    call(101, 17, C["victim"], 0, 0)
    return True


def ptrace_own_child():
    pid = os.fork()
    if pid == 0:
        time.sleep(5)
        os._exit(0)
    try:
        call(101, 0x4206, pid, 0, 0)  # PTRACE_SEIZE
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    return True


def signal_victim():
    os.kill(C["victim"], 0)
    return True


def pidfd_of_victim():
    fd = os.pidfd_open(C["victim"])
    signal.pidfd_send_signal(fd, 0)
    return True


def steal_descriptor_of_victim():
    fd = os.pidfd_open(C["victim"])
    return call(438, fd, 1, 0) >= 0  # pidfd_getfd


def see_host_processes():
    return str(C["victim"]) in os.listdir("/proc")


def compare_victim():
    return call(312, os.getpid(), C["victim"], 0, 0, 0) >= 0  # kcmp


def kill_pid_one():
    os.kill(1, signal.SIGKILL)
    time.sleep(0.2)
    return False


def read_environ_of_pid_one():
    return Path("/proc/1/environ").read_bytes() is not None


def root_of_pid_one():
    return os.listdir("/proc/1/root")


# --- namespaces and mounts
def unshare_user():
    return call(272, NEWUSER) == 0


def clone_user():
    pid = call(56, NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def clone3_user():
    args = ctypes.create_string_buffer(struct.pack("=11Q", NEWUSER, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0))
    pid = call(435, args, 88)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def setns_net_of_pid_one():
    return call(308, os.open("/proc/1/ns/net", os.O_RDONLY), NEWNET) == 0


def mount_tmpfs():
    call(272, NEWNS) if os.geteuid() == 0 else None
    return call(165, b"x", str(C["scratch"]).encode(), b"tmpfs", 0, 0) == 0


def new_mount_api():
    return call(430, b"tmpfs", 0) >= 0


def clone_tree():
    return call(428, -100, b"/", 1) >= 0


def chroot():
    os.chroot(str(C["scratch"]))
    return True


def unmount_proc():
    return call(166, b"/proc", 2) == 0


def handle_of_file():
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
    mount_id = ctypes.create_string_buffer(8)
    return call(303, -100, b"/etc/passwd", handle, mount_id, 0) == 0


# --- kernel surface
def io_uring():
    return call(425, 8, ctypes.create_string_buffer(128)) >= 0


def userfaultfd():
    return call(323, 1) >= 0  # UFFD_USER_MODE_ONLY


def memfd_secret():
    return call(447, 0) >= 0


def keyring():
    return call(250, 1, 0, 0, 0, 0) >= 0  # KEYCTL_JOIN_SESSION_KEYRING


def perf_event():
    attr = ctypes.create_string_buffer(struct.pack("=IIQ", 1, 128, 9) + bytes(112))
    return call(298, attr, 0, -1, -1, 0) >= 0


def bpf_map():
    attr = ctypes.create_string_buffer(struct.pack("=IIII", 2, 4, 8, 1) + bytes(112))
    return call(321, 0, attr, 128) >= 0


def kernel_log():
    return call(103, 10, 0, 0) > 0  # syslog(SYSLOG_ACTION_SIZE_BUFFER)


def i386_call():
    return subprocess.run([str(C["i386"])], check=False).returncode == 0


def x32_call():
    pid = os.fork()
    if pid == 0:
        r = LIBC.syscall(ctypes.c_long(0x40000000 | 39))
        os._exit(0 if r > 0 or ctypes.get_errno() == 38 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def unknown_call():
    return call(1000) >= 0


# --- socket families
def vsock():
    return socket.socket(40, socket.SOCK_STREAM) is not None


def crypto_socket():
    return socket.socket(38, socket.SOCK_SEQPACKET) is not None


def packet_socket():
    return socket.socket(17, socket.SOCK_RAW, 0) is not None


def raw_socket():
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) is not None


def multipath_tcp():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) is not None


def netlink_netfilter():
    return socket.socket(16, socket.SOCK_RAW, 12) is not None


def netlink_audit():
    return socket.socket(16, socket.SOCK_RAW, 9) is not None


def netlink_sock_diag():
    return socket.socket(16, socket.SOCK_RAW, 4) is not None


def netlink_with_high_bits():
    return call(41, 16 | 1 << 32, 3, 12) >= 0


def delete_own_link():
    with socket.socket(16, socket.SOCK_RAW, 0) as s:
        s.send(struct.pack("=IHHIIBxHiII", 32, 17, 5, 1, 0, 0, 0, C["link"], 0, 0))
        (code,) = struct.unpack_from("=i", s.recv(4096), 16)
        if code:
            raise OSError(-code, os.strerror(-code))
    return True


# --- the host's files and devices
def file_beside_grants():
    return Path(str(C["beside"])).read_text() == "SECRET"


def ssh_key_in_home():
    return Path(str(C["ssh"])).read_text() == "SECRET"


def shadow():
    return Path("/etc/shadow").read_bytes() is not None


def sysv_memory():
    return LIBC.shmget(C["shm_key"], 0, 0) >= 0 or fail()


def posix_memory():
    return Path(str(C["posix_shm"])).read_text() == "SECRET"


def message_queue():
    return LIBC.msgget(C["shm_key"], 0) >= 0 or fail()


def fail() -> bool:
    raise OSError(2, "not there")


def core_pattern():
    return os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY) >= 0


def sysrq():
    return os.open("/proc/sysrq-trigger", os.O_WRONLY) >= 0


def kernel_message_device():
    return os.open("/dev/kmsg", os.O_RDONLY) >= 0


def block_device():
    return os.open(str(C["block"]), os.O_RDONLY) >= 0


def make_block_device():
    path = str(C["scratch"]) + "/node"
    os.mknod(path, 0o060600, C["block_number"])
    fd = os.open(path, os.O_RDONLY)
    return os.pread(fd, 1, 0)


def move_out_of_cgroup():
    return os.open(str(C["cgroup_procs"]), os.O_WRONLY) >= 0


def bpf_file_system():
    return os.listdir("/sys/fs/bpf") is not None


def hard_link_to_shadow():
    os.link("/etc/shadow", str(C["scratch"]) + "/link")
    return True


# --- privileges
def setuid_program():
    return subprocess.check_output([str(C["setuid"]), "-u"]).strip() == b"0"


def file_capability():
    code = "import socket; socket.socket(17, 3, 0)"
    return (
        subprocess.run(
            [str(C["filecap"]), "-I", "-S", "-c", code], check=False, stderr=2
        ).returncode
        == 0
    )


def become_root():
    os.setuid(0)
    return True


def negative_nice():
    os.nice(-5)
    return True


def real_time():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return True


def host_name():
    call(272, 0x04000000) if os.geteuid() == 0 else None  # its own, as the control
    socket.sethostname("changed")
    return True


# --- the terminal
def _on_tty(request: int) -> bool:
    pid, master = pty.fork()
    if pid == 0:
        try:
            call(16, 0, request, b"x")
            os._exit(0)
        except OSError as exc:
            os._exit(exc.errno)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(master)
    if status:
        raise OSError(status, os.strerror(status))
    return True


def type_into_terminal():
    return _on_tty(0x5412)  # TIOCSTI


def type_into_terminal_high_bits():
    return _on_tty(0x5412 | 1 << 32)


def change_line_discipline():
    pid, master = pty.fork()
    if pid == 0:
        try:
            fcntl.ioctl(0, 0x5423, struct.pack("i", 0))
            os._exit(0)
        except OSError as exc:
            os._exit(exc.errno)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(master)
    return status == 0 or fail()


def attempt(probe: object) -> list[object]:
    """Run one probe in a process of its own."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        try:
            worked = [bool(probe()), ""]
        except BaseException as exc:  # noqa: BLE001 - any failure is "it did not work"
            worked = [False, f"{type(exc).__name__}: {exc}"[:120]]
        os.write(w, json.dumps(worked).encode())
        os._exit(0)
    os.close(w)
    data = b""
    with contextlib.suppress(OSError):
        while part := os.read(r, 4096):
            data += part
    os.close(r)
    _, status = os.waitpid(pid, 0)
    return json.loads(data) if data else [False, f"killed, wait status {status}"]


def main() -> None:
    C.update(json.loads(Path(sys.argv[1]).read_text()))
    names = sys.argv[2].split(",")
    sys.stdout.write(json.dumps({name: attempt(globals()[name]) for name in names}))


if __name__ == "__main__":
    main()
