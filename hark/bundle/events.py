"""The event table: kinds, and what each key of an event's map means.

The authority is ``docs/spec/records.md``; ``tests/bundle/test_events_table.py`` compares the two.
Rules: values only, no I/O. A kind below 63 keeps its number for ever; keys are never reused.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["COMMON", "FIELDS", "Key", "Kind"]


class Kind(IntEnum):
    """Event kinds (docs/spec/records.md, "Kinds"): 1-31, 46, 47 recording, 32-45 determinism."""

    RUN_START = 1
    RUN_END = 2
    LOSS = 3
    DOWNGRADE = 4
    EXEC = 5
    FORK = 6
    EXIT = 7
    CONNECT = 8
    SYSCALL_COUNTS = 9
    DNS = 10
    DENIED = 11
    CONN = 12
    DIAL = 13
    UPSTREAM = 14
    REQUEST = 15
    BODY = 16
    SUBSTITUTED = 17
    RESPONSE = 18
    DELIVERY = 19
    TRAILERS = 20
    END = 21
    CONN_CLOSE = 22
    STDIO = 23
    SIGNAL = 24
    SOCKET_CLOSE = 25
    UDP_FLOW = 26
    NOTICE = 27
    WRITE_SET = 28
    WORKSPACE_START = 29
    WORKSPACE_CONTENT = 30
    SURROUNDINGS = 31
    RANDOM = 32
    SEED = 33
    SOCKET = 46
    FILE = 47


class Key(IntEnum):
    """Keys every event may carry."""

    ACTOR = 1
    EXCHANGE = 2
    COOKIE = 3


COMMON: dict[int, str] = {1: "actor", 2: "exchange", 3: "cookie"}

FIELDS: dict[Kind, dict[int, str]] = {
    Kind.RUN_START: {
        4: "argv",
        5: "cwd",
        6: "policy",
        7: "policy_digest",
        8: "environment",
        9: "capabilities",
        10: "tier",
        11: "determinism",
        12: "redirected",
        13: "person",
        14: "id_base",
        15: "version",
        16: "synthetic",
        17: "kernel",
        18: "placeholders",
        19: "workspace",
        20: "grants",
        21: "development",
        22: "hosts",
        23: "note",
        24: "workspace_state",
        25: "upstream_ca",
        26: "limits",
        27: "published",
    },
    Kind.RUN_END: {
        4: "wait_status",
        5: "exit_code",
        6: "reason",
        7: "totals",
        8: "stragglers",
        9: "rings",
        10: "detail",
        11: "limits_met",
    },
    Kind.LOSS: {4: "source", 5: "count", 6: "detail"},
    Kind.DOWNGRADE: {4: "feature", 5: "cause", 6: "effect"},
    Kind.EXEC: {
        4: "filename",
        5: "argv",
        6: "truncated",
        7: "digest",
        8: "digest_state",
        9: "parent_tgid",
        10: "credentials",
    },
    Kind.FORK: {4: "child", 5: "thread"},
    Kind.EXIT: {4: "status", 5: "last"},
    Kind.CONNECT: {4: "src", 5: "sport", 6: "dst", 7: "dport"},
    Kind.SYSCALL_COUNTS: {4: "counts"},
    Kind.DNS: {
        4: "name",
        5: "type",
        6: "rcode",
        7: "answers",
        8: "rule",
        9: "sport",
        10: "server",
        11: "tcp",
    },
    Kind.DENIED: {
        4: "layer",
        5: "reason",
        6: "rule",
        7: "syscall",
        8: "errno",
        9: "host",
        10: "dst",
        11: "dport",
        12: "proto",
        13: "detail",
        14: "hint",
        15: "conn",
        16: "sport",
        17: "policy",
        18: "ia32",
        19: "count",
    },
    Kind.CONN: {
        4: "conn",
        5: "sni",
        6: "src",
        7: "sport",
        8: "dst",
        9: "dport",
        10: "tls",
        11: "cipher",
        12: "alpn",
        13: "resumed",
        14: "published",
    },
    Kind.DIAL: {
        4: "host",
        5: "port",
        6: "address",
        7: "status",
        8: "errno",
        9: "conn",
        10: "proxy",
        11: "proxy_status",
    },
    Kind.UPSTREAM: {
        4: "conn",
        5: "host",
        6: "address",
        7: "port",
        8: "tls",
        9: "cipher",
        10: "certificate",
        11: "pooled",
        12: "resumed",
    },
    Kind.REQUEST: {4: "conn", 5: "host", 6: "method", 7: "target", 8: "head"},
    Kind.BODY: {4: "data", 5: "end"},
    Kind.SUBSTITUTED: {4: "secret", 5: "header", 6: "host"},
    Kind.RESPONSE: {4: "status", 5: "own", 6: "head"},
    Kind.DELIVERY: {4: "data", 5: "end"},
    Kind.TRAILERS: {4: "response", 5: "fields"},
    Kind.END: {4: "reason", 5: "request_bytes", 6: "response_bytes"},
    Kind.CONN_CLOSE: {4: "conn", 5: "reason", 6: "rx_bytes", 7: "tx_bytes"},
    Kind.STDIO: {4: "stream", 5: "data", 6: "end", 7: "size"},
    Kind.SIGNAL: {4: "signo", 5: "source"},
    Kind.SOCKET_CLOSE: {4: "tx_bytes", 5: "rx_bytes"},
    Kind.UDP_FLOW: {4: "src", 5: "sport", 6: "dst", 7: "dport"},
    Kind.NOTICE: {4: "subject", 5: "text", 6: "hint"},
    Kind.WRITE_SET: {4: "folder", 5: "entries", 6: "count", 7: "root", 8: "complete"},
    Kind.WORKSPACE_START: {4: "folder", 5: "manifest", 6: "digest"},
    Kind.WORKSPACE_CONTENT: {
        4: "folder",
        5: "contents",
        6: "kept",
        7: "bytes",
        8: "left_out",
        9: "complete",
        10: "detail",
    },
    Kind.SOCKET: {
        4: "op",
        5: "family",
        6: "type",
        7: "src",
        8: "sport",
        9: "dst",
        10: "dport",
        11: "name",
    },
    Kind.FILE: {4: "op", 5: "path", 6: "name", 7: "truncated"},
    Kind.SURROUNDINGS: {4: "files", 5: "processors", 6: "machine", 7: "time_zone"},
    Kind.RANDOM: {4: "source", 5: "calls", 6: "bytes", 7: "stream"},
    Kind.SEED: {4: "kem", 5: "sealed", 6: "recipient"},
}
