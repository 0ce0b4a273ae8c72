"""Attacks, each a function that returns something true when it worked and raises when it did not.

This file runs inside the sandbox and, as the control, outside it. It imports only the standard
library and is run as ``python3 -I -S probes.py CONTEXT.json``; it prints one JSON object.
"""

# ruff: noqa: PTH101, PTH102, PTH104, PTH110, PTH115, PTH116, PTH208, PTH211
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


def path_socket_in_run_c52():
    return unix(str(C["run_socket"])) == b"SECRET"


def path_socket_in_granted_folder_c52():
    return unix(str(C["granted_socket"])) == b"SECRET"


def path_socket_in_workspace_c52():
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


def read_environ_of_pid_one_c58():
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


def clone3_user_c60():
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
def io_uring_c41():
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
def vsock_c42():
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


# --- more of other processes
def memory_file_of_victim():
    return os.open(f"/proc/{C['victim']}/mem", os.O_RDONLY) >= 0


def folder_of_victim():
    return os.listdir(f"/proc/{C['victim']}/cwd") is not None


def root_of_victim():
    return os.listdir(f"/proc/{C['victim']}/root") is not None


def write_memory_of_victim():
    buf = ctypes.create_string_buffer(b"S")
    local = struct.pack("QQ", ctypes.addressof(buf), 1)
    remote = struct.pack("QQ", C["victim_address"], 1)
    return call(311, C["victim"], local, 1, remote, 1, 0) == 1


def limits_of_victim():
    return call(302, C["victim"], 7, 0, ctypes.create_string_buffer(16)) == 0


def priority_of_victim():
    os.setpriority(os.PRIO_PROCESS, C["victim"], 1)
    return True


def cpus_of_victim():
    os.sched_setaffinity(C["victim"], os.sched_getaffinity(C["victim"]))
    return True


def signal_victim_by_a_descriptor():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.fcntl(s, fcntl.F_SETOWN, C["victim"])
    return True


def queue_signal_to_victim():
    info = ctypes.create_string_buffer(struct.pack("iii", 0, 0, -1) + bytes(116))
    return call(129, C["victim"], 0, info) == 0  # rt_sigqueueinfo


def advise_memory_of_victim():
    fd = os.pidfd_open(C["victim"])
    part = struct.pack("QQ", C["victim_address"] & ~4095, 4096)
    return call(440, fd, part, 1, 20, 0) >= 0  # process_madvise, MADV_COLD


def namespaces_by_pidfd():
    return call(308, os.pidfd_open(os.getppid()), NEWNET) == 0


def pages_of_victim():
    return call(279, C["victim"], 0, 0, 0, 0, 0) >= 0  # move_pages


def trace_me():
    pid = os.fork()
    if pid == 0:
        os._exit(LIBC.ptrace(0, 0, 0, 0) & 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 or fail()


def memory_of_pid_one():
    return os.open("/proc/1/mem", os.O_RDWR) >= 0


def descriptors_of_pid_one():
    return os.listdir("/proc/1/fd") is not None


def descriptors_that_leaked():
    """A control-free property: nothing but the three standard ones, and none that leads out."""
    found = {int(fd) for fd in os.listdir("/proc/self/fd")} - {0, 1, 2}
    real = [
        os.readlink(f"/proc/self/fd/{fd}") for fd in found if os.path.exists(f"/proc/self/fd/{fd}")
    ]
    return [r for r in real if not r.startswith(("pipe:", "/proc/"))] or fail()


# --- more namespaces, mounts, surfaces
def clone_with(flag: int) -> bool:
    pid = call(56, flag | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def clone_network():
    return clone_with(NEWNET)


def clone_mounts():
    return clone_with(NEWNS)


def clone_pids():
    return clone_with(0x20000000)


def unshare_time():
    return call(272, 0x80) == 0


def unshare_by_a_wide_number():
    return call(1 << 32 | 272, NEWUSER) == 0


def remount_writable():
    call(272, NEWNS) if os.geteuid() == 0 else None
    return call(165, b"none", b"/", b"", 0x20 | 0x1000, 0) == 0


def list_mounts():
    ask = ctypes.create_string_buffer(struct.pack("=IIQQ", 24, 0, 0xFFFFFFFFFFFFFFFF, 0))
    return call(458, ask, ctypes.create_string_buffer(512), 64, 0) > 0


def open_by_handle():
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
    call(303, -100, b"/etc/passwd", handle, ctypes.create_string_buffer(8), 0)
    return call(304, os.open("/etc", os.O_RDONLY), handle, os.O_RDONLY) >= 0


def fanotify():
    return call(300, 0x200, 0) >= 0  # FAN_REPORT_FID needs no privilege


def io_privilege():
    return call(172, 0) == 0  # iopl


def local_descriptor_table():
    return call(154, 0, ctypes.create_string_buffer(16), 16) >= 0


def clock_state():
    return call(159, ctypes.create_string_buffer(208)) >= 0  # adjtimex, reading


def clock_of_others():
    return call(305, 0, ctypes.create_string_buffer(208)) >= 0  # clock_adjtime, reading


def new_key():
    return call(248, b"user", b"hark", b"x", 1, -2) >= 0


def requested_key():
    call(248, b"user", b"hark-r", b"x", 1, -2)
    return call(249, b"user", b"hark-r", 0, -2) >= 0


def bpf_program():
    code = ctypes.create_string_buffer(struct.pack("=Q", 0xB7) + struct.pack("=Q", 0x95))
    text = ctypes.create_string_buffer(b"GPL")
    attr = struct.pack("=IIQQ", 1, 2, ctypes.addressof(code), ctypes.addressof(text)) + bytes(104)
    return call(321, 5, ctypes.create_string_buffer(attr), 128) >= 0


def all_capabilities():
    head = struct.pack("=Ii", 0x20080522, 0)
    return call(126, head, struct.pack("=6I", 1, 1, 0, 0, 0, 0)) == 0  # capset: CAP_CHOWN alone


def groups():
    os.setgroups([0])
    return True


def raise_limit():
    import resource  # noqa: PLC0415 - a module of C, not needed elsewhere

    hard = resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1]
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (hard + 1, hard + 1))
    return True


def real_time_io():
    return call(251, 1, 0, 1 << 13 | 4) == 0  # ioprio_set


def protect_from_oom():
    Path("/proc/self/oom_score_adj").write_text("-1000")
    return True


# --- sockets of the host, otherwise
def to_unix(path: str, kind: int, data: bytes = b"OUT") -> bool:
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.connect(path)
        return s.send(data) == len(data)


def abstract_datagram():
    return to_unix("\0" + str(C["abstract"]) + "-d", socket.SOCK_DGRAM)


def abstract_packets():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect("\0" + str(C["abstract"]) + "-p")
        return s.recv(6) == b"SECRET"


def path_datagram_in_workspace_c53():
    return to_unix(str(C["workspace_datagram"]), socket.SOCK_DGRAM)


def path_datagram_in_granted_folder_c53():
    return to_unix(str(C["granted_datagram"]), socket.SOCK_DGRAM)


def path_socket_by_descriptor_c52():
    folder, _, name = str(C["granted_socket"]).rpartition("/")
    fd = os.open(folder, os.O_PATH)
    return unix(f"/proc/self/fd/{fd}/{name}") == b"SECRET"


def descriptor_to_the_host():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + str(C["abstract"]))
        with contextlib.suppress(BrokenPipeError):  # it has hung up, after it was reached
            socket.send_fds(s, [b"x"], [0])
    return True


def fifo_in_granted_folder():
    fd = os.open(str(C["granted_fifo"]), os.O_WRONLY | os.O_NONBLOCK)
    return os.write(fd, b"OUT") == 3


def fifo_in_workspace():
    fd = os.open(str(C["workspace_fifo"]), os.O_WRONLY | os.O_NONBLOCK)
    return os.write(fd, b"OUT") == 3


def semaphores():
    return LIBC.semget(C["shm_key"], 0, 0) >= 0 or fail()


def posix_queue():
    return call(240, str(C["queue"]).encode(), os.O_RDWR, 0, 0) >= 0  # mq_open


def terminal_of_the_host():
    fd = os.open(str(C["terminal"]), os.O_WRONLY | os.O_NOCTTY)
    return os.write(fd, b"OUT") == 3


def pairs_of_other_families():
    pair = (ctypes.c_int * 2)()
    ctypes.set_errno(0)
    LIBC.syscall(ctypes.c_long(53), 2, 1, 0, pair)
    return ctypes.get_errno() == 95 or fail()  # EOPNOTSUPP: both sockets had been made


def udp_lite():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136) is not None


def netlink_with(protocol: int) -> bool:
    return socket.socket(16, socket.SOCK_RAW, protocol) is not None


def netlink_uevent():
    return netlink_with(15)


def netlink_generic():
    return netlink_with(16)


def netlink_ipsec():
    return netlink_with(6)


def netlink_connector():
    return netlink_with(11)


def _route_message(kind: int, flags: int, body: bytes) -> bool:
    """One request to NETLINK_ROUTE; as root in a network namespace of its own, as the control."""
    call(272, NEWNET) if os.geteuid() == 0 else None
    with socket.socket(16, socket.SOCK_RAW, 0) as s:
        s.send(struct.pack("=IHHII", 16 + len(body), kind, 5 | flags, 1, 0) + body)
        (code,) = struct.unpack_from("=i", s.recv(4096), 16)
        if code:
            raise OSError(-code, os.strerror(-code))
    return True


def new_link():
    info = b"dummy"
    kind = struct.pack("=HH", 4 + len(info), 1) + info + bytes(3)
    nest = struct.pack("=HH", 4 + len(kind), 18) + kind
    return _route_message(16, 0x600, struct.pack("=BxHiII", 0, 0, 0, 0, 0) + nest)


def new_address():
    body = struct.pack("=BBBBI", 2, 32, 0, 0, 1) + struct.pack("=HH4s", 8, 2, bytes([10, 9, 8, 7]))
    return _route_message(20, 0x600, body)


def new_rule():
    body = struct.pack("=BBBBBBBBI", 2, 0, 0, 0, 254, 0, 0, 1, 0)
    return _route_message(32, 0x600, body)


# --- files, otherwise
def link_out_of_workspace():
    os.symlink(str(C["beside"]), "way-out")
    return Path("way-out").read_text() == "SECRET"


def climb_out_of_granted_folder():
    fd = os.open(str(Path(str(C["granted_socket"])).parent), os.O_PATH)
    return os.read(os.open("../beside", os.O_RDONLY, dir_fd=fd), 6) == b"SECRET"


def climb_out_by_proc():
    return Path(f"/proc/self/root/../..{C['beside']}").read_text() == "SECRET"


def write_to_granted_file():
    return os.open(str(C["granted_file"]), os.O_WRONLY) >= 0


def truncate_granted_file():
    os.truncate(str(C["granted_file"]), 0)
    return True


def mode_of_granted_file():
    os.chmod(str(C["granted_file"]), 0o600)
    return True


def times_of_granted_file():
    os.utime(str(C["granted_file"]), (1, 1))
    return True


def attribute_of_granted_file():
    os.setxattr(str(C["granted_file"]), "user.hark", b"x")
    return True


def rename_of_granted_file():
    os.rename(str(C["granted_file"]), str(C["granted_file"]) + "2")
    os.rename(str(C["granted_file"]) + "2", str(C["granted_file"]))
    return True


def make_in_granted_folder():
    Path(str(C["granted_own"]), "made").write_text("x")
    return True


def move_granted_file_into_workspace():
    os.link(str(C["granted_file"]), "linked")
    return True


def hosts_file():
    return os.open("/etc/hosts", os.O_WRONLY) >= 0


def program_of_the_system():
    return os.open("/usr/bin/env", os.O_WRONLY) >= 0


def whiteout():
    os.mknod("white", 0o020600, 0)
    return True


def rename_with_whiteout():
    Path("from").write_text("x")
    return call(316, -100, b"from", -100, b"to", 4) == 0


def overlay_redirect():
    os.mkdir("layer")
    os.setxattr("layer", "trusted.overlay.redirect", b"/etc")
    return True


def capability_on_a_file():
    Path("able").write_text("x")
    os.setxattr("able", "security.capability", struct.pack("<5I", 0x02000001, 0x2000, 0, 0, 0))
    return True


def give_file_to_root():
    Path("given").write_text("x")
    os.chown("given", 0, 0)
    return os.geteuid() == 0 or os.stat("given").st_uid == 0


def tunnel_device():
    return os.open("/dev/net/tun", os.O_RDWR) >= 0


def fuse_device():
    return os.open("/dev/fuse", os.O_RDWR) >= 0


def virtual_machines():
    return os.open("/dev/kvm", os.O_RDWR) >= 0


def loop_devices():
    return os.open("/dev/loop-control", os.O_RDWR) >= 0


def physical_memory():
    return os.open("/dev/mem", os.O_RDONLY) >= 0


def kernel_memory():
    return os.open("/proc/kcore", os.O_RDONLY) >= 0


def kernel_addresses():
    line = Path("/proc/kallsyms").read_text().split("\n", 1)[0]
    return int(line.split()[0], 16) != 0


def sysctl_of_network():
    return os.open("/proc/sys/net/ipv4/ip_forward", os.O_WRONLY) >= 0


def sysctl_of_namespaces():
    return os.open("/proc/sys/user/max_user_namespaces", os.O_WRONLY) >= 0


def sysctl_of_modules():
    return os.open("/proc/sys/kernel/modprobe", os.O_WRONLY) >= 0


def sysfs():
    return os.listdir("/sys/class") is not None


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


def alone(name: str) -> list[object]:
    """Run one probe in a program of its own: the recording then tells whose each event is."""
    words = [sys.executable, "-I", "-S", __file__, sys.argv[1], name]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    return next(iter(json.loads(done.stdout).values())) if done.stdout else [False, "killed"]


def main() -> None:
    C.update(json.loads(Path(sys.argv[1]).read_text()))
    names = sys.argv[2].split(",")
    if "--alone" in sys.argv:
        found = {name: alone(name) for name in names}
    else:
        found = {name: attempt(globals()[name]) for name in names}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
