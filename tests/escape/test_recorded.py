"""The same attacks, and those on the network, from a real ``hark run``; and what its bundle says.

One run carries out every probe, each in a program of its own, so that an event's actor names the
probe. Witnesses: the host's services, and a sniffer on all interfaces of the host that counts the
bytes of marked packets. Control: the same probes in a network whose other end is such a sniffer.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness.recording import Recording, raw
from harness.running import hark, need, write_policy

from escape import egress
from escape.attacked import PYTHON, attacked
from escape.network import Witness, pair
from escape.test_escape import NO_CONTROL, PERSON, ROOT

pytestmark = [pytest.mark.kernel]

NOBODY = 65534
LOCAL = [*PERSON, *ROOT, *NO_CONTROL]
FLOWS = [*egress.PERSON, *egress.ROOT]
# Which event says so, by its kind and layer. What the kernel refuses without an event of its own (a
# path that is not there, a missing capability, a read-only mount) is told by its program's exec.
TOLD: dict[str, tuple[str, ...]] = {
    "connect": (
        "host_loopback",
        "host_loopback_v6",
        "host_address",
        "fast_open",
    ),
    "denied nft": (
        "host_udp",
        "ipv6_udp_c39",
        "mapped_udp_c40",
        "quic",
        "time_protocol",
        "fragments",
        "multicast",
        "multicast_v6",
        "broadcast",
        "segmented_datagrams",
        "connect_by_sendmmsg",
        "bound_to_the_device",
        "foreign_source_v6",
        "segment_routing",
        "record_route_option",
        "reconnected_socket",
    ),
    "denied seccomp": (
        "read_memory_of_victim",
        "ptrace_victim",
        "ptrace_own_child",
        "compare_victim",
        "unshare_user",
        "clone_user",
        "clone3_user_c60",
        "handle_of_file",
        "io_uring_c41",
        "userfaultfd",
        "memfd_secret",
        "keyring",
        "i386_call",
        "x32_call",
        "vsock_c42",
        "crypto_socket",
        "multipath_tcp",
        "netlink_netfilter",
        "netlink_audit",
        "netlink_sock_diag",
        "netlink_with_high_bits",
        "file_capability",
        "type_into_terminal",
        "type_into_terminal_high_bits",
        "change_line_discipline",
        "write_memory_of_victim",
        "pages_of_victim",
        "trace_me",
        "unshare_by_a_wide_number",
        "list_mounts",
        "fanotify",
        "io_privilege",
        "local_descriptor_table",
        "clock_state",
        "clock_of_others",
        "new_key",
        "requested_key",
        "pairs_of_other_families",
        "udp_lite",
        "netlink_uevent",
        "netlink_generic",
        "netlink_ipsec",
        "netlink_connector",
        "mount_tmpfs",
        "new_mount_api",
        "clone_tree",
        "chroot",
        "bpf_map",
        "perf_event",
        "kernel_log",
        "packet_socket",
        "raw_socket",
        "host_name",
        "namespaces_by_pidfd",
        "clone_network",
        "clone_mounts",
        "clone_pids",
        "unshare_time",
        "remount_writable",
        "open_by_handle",
        "bpf_program",
        "unmount_proc",
        "unknown_call",
        "lite_datagram",
        "ping_v6",
        "raw_ip",
        "raw_ping",
        "raw_frame",
        "cooked_packet",
    ),
    "denied mediator": (
        "plain_http_c28",
        "other_port_c34",
        "forward_proxy_form_c30",
        "unknown_protocol",
        "mail",
        "tls_without_a_name",
        "ipv6_tcp_c39",
        "mapped_tcp_c40",
        "dns_over_tls_c37",
        "urgent_data",
        "copy_free",
        "gateway_c43",
        "metadata_service",
        "without_the_variables_c1_c3",
    ),
    "denied dns": (
        "fragments_to_dns_port_c37",
        "dns_tunnel_c36",
        "dns_text_tunnel_c36",
        "dns_to_the_resolver_c32",
        "dns_over_tcp_c37",
        "dns_port_from_dns_port",
    ),
    "udp_flow": ("answer_to_the_resolver",),
}
SCRIPTS = ("/probes.pyc", "/egress.pyc")


@pytest.fixture(scope="module")
def folder() -> Any:
    """A place everyone can reach."""
    path = Path("/var/tmp") / f"hark-recorded-{os.getpid()}"
    path.mkdir(mode=0o755)
    yield path
    for bundle in (path / "out").glob("*.hark"):  # what the probes wrote is kept until then
        hark("discard", bundle)
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def attack(folder: Path) -> Any:
    """One run of everything: what probes said, which services were reached, bytes seen, events."""
    need("root", os.geteuid() == 0)
    with attacked(folder, NOBODY) as (services, context):
        granted = folder / "granted"
        for name in ("probes", "egress"):  # compiled, since each probe is a start of its own
            source = Path(__file__).with_name(f"{name}.py")
            code = "import py_compile, sys; py_compile.compile(*sys.argv[1:], doraise=True)"
            subprocess.run([PYTHON, "-c", code, source, granted / f"{name}.pyc"], check=True)
        (granted / "context.json").write_text(json.dumps(context))
        (folder / "out").mkdir()
        os.chown(folder / "out", NOBODY, NOBODY)
        policy = write_policy(
            folder / "policy.toml",
            f'version = 1\nread_paths = ["{granted}", "{folder}/scratch"]\n',
        )
        python, words = f"{PYTHON} -I -S {granted}", f"{granted}/context.json"
        script = (
            f"{python}/probes.pyc {words} {','.join(LOCAL)} --alone; echo;"
            f"{python}/egress.pyc {words} {','.join(FLOWS)}"
        )
        witness = Witness(os.getpid())
        done = hark(
            "run", "--as", "nobody", "--policy", policy, "-o", folder / "out" / "run.hark",
            "--", "/bin/sh", "-c", script, cwd=folder / "project",
        )  # fmt: skip
        assert done.status == 0, done.stderr
        said = [json.loads(line) for line in done.text.splitlines()]
        yield said, services.seen(), witness.result(), Recording.read(folder / "out" / "run.hark")


def told(recording: Recording) -> dict[str, set[str]]:
    """What the bundle says of each probe: kinds of events, of denials also the layer."""
    probe_of: dict[int, str] = {}
    out: dict[str, set[str]] = {name: set() for name in (*LOCAL, *FLOWS)}
    for event in recording.events:
        if "actor" not in event.fields:
            continue
        tgid = event.actor.tgid
        if event.kind == "fork" and tgid in probe_of:
            probe_of[event["child"][0]] = probe_of[tgid]
        if event.kind == "exec":
            words = [raw(word).decode() for word in event["argv"]]
            if len(words) > 5 and words[3].endswith(SCRIPTS) and words[5] in out:
                probe_of[tgid] = words[5]
        if name := probe_of.get(tgid):
            out[name].add(event.kind if event.kind != "denied" else f"denied {event['layer']}")
    return out


def test_nothing_of_the_host_was_reached(attack: Any):
    said, reached, sent, _ = attack
    assert {name: got for name, got in said[0].items() if got[0]} == {}
    assert set(said[0]) == set(LOCAL)
    assert set(said[1]) == set(FLOWS)
    assert reached == set()
    assert sent == {}, "bytes of the agent on an interface of the host"


def test_each_attack_is_told_with_its_program(attack: Any, subtests: Any):
    found = told(attack[3])
    for name in (*LOCAL, *FLOWS):
        with subtests.test(name):
            assert "exec" in found[name]
            wanted = next((kind for kind, names in TOLD.items() if name in names), "exec")
            assert wanted in found[name]


def test_the_run_is_whole(folder: Path, attack: Any):
    (end,) = attack[3].kind("run_end")
    assert not attack[3].kind("loss")
    assert [ring for ring in end["rings"] if ring[3]] == []  # produced, kept, dropped
    assert hark("verify", folder / "out" / "run.hark").status == 0


def test_control_each_flow_reaches_a_witness_outside(folder: Path, subtests: Any):
    need("root", os.geteuid() == 0)
    shutil.copy(egress.__file__, folder / "egress.py")  # where nobody can read it
    script = [PYTHON, "-I", "-S", folder / "egress.py", "none"]
    with pair() as (server, client):
        witness = Witness(server, "serve")
        for uid, names in ((NOBODY, egress.PERSON), (0, egress.ROOT)):
            enter = ["nsenter", "-t", str(client), "-n", "-S", str(uid), "-G", str(uid)]
            subprocess.run([*enter, *script, ",".join(names)], check=True, capture_output=True)
        seen = witness.result()
    for name in FLOWS:
        with subtests.test(name):
            if name not in seen:
                pytest.skip("does not get out of an open network either")
            assert seen[name] > 0
