"""No attack works from inside, and each works outside: else the test would prove nothing.

Controls: ``person`` runs the same probe as the same person on the host, with no_new_privs off;
``root`` as root, for what only root could do. A probe without a working control on this kernel is
reported as skipped, never as passed. Services of the host are the witness: they count who spoke
to them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.counts import COUNTS
from launcher.rig import ALICE_ID, Box

from escape.attacked import PYTHON, REACHED, Services, attacked
from hark.launcher.plan import PathGrant

if TYPE_CHECKING:
    from collections.abc import Callable

    MakeBox = Callable[..., Box]

pytestmark = pytest.mark.kernel
PROBES = Path(__file__).with_name("probes.py")

PERSON = [
    "abstract_socket",
    "path_socket_in_run_c52",
    "path_socket_in_granted_folder_c52",
    "path_socket_in_workspace_c52",
    "host_loopback",
    "host_loopback_v6",
    "host_address",
    "host_udp",
    "read_environ_of_victim",
    "read_memory_of_victim",
    "ptrace_victim",
    "ptrace_own_child",
    "signal_victim",
    "pidfd_of_victim",
    "steal_descriptor_of_victim",
    "see_host_processes",
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
    "file_beside_grants",
    "ssh_key_in_home",
    "sysv_memory",
    "posix_memory",
    "message_queue",
    "setuid_program",
    "file_capability",
    "type_into_terminal",
    "type_into_terminal_high_bits",
    "change_line_discipline",
    "memory_file_of_victim",
    "folder_of_victim",
    "root_of_victim",
    "write_memory_of_victim",
    "limits_of_victim",
    "priority_of_victim",
    "cpus_of_victim",
    "signal_victim_by_a_descriptor",
    "queue_signal_to_victim",
    "advise_memory_of_victim",
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
    "abstract_datagram",
    "abstract_packets",
    "path_datagram_in_workspace_c53",
    "path_datagram_in_granted_folder_c53",
    "path_socket_by_descriptor_c52",
    "descriptor_to_the_host",
    "fifo_in_granted_folder",
    "fifo_in_workspace",
    "semaphores",
    "posix_queue",
    "terminal_of_the_host",
    "pairs_of_other_families",
    "udp_lite",
    "netlink_uevent",
    "netlink_generic",
    "netlink_ipsec",
    "netlink_connector",
    "link_out_of_workspace",
    "climb_out_of_granted_folder",
    "climb_out_by_proc",
    "write_to_granted_file",
    "truncate_granted_file",
    "mode_of_granted_file",
    "times_of_granted_file",
    "attribute_of_granted_file",
    "rename_of_granted_file",
    "make_in_granted_folder",
    "move_granted_file_into_workspace",
    "whiteout",
    "rename_with_whiteout",
    "sysfs",
]

ROOT = [
    "read_environ_of_pid_one_c58",
    "root_of_pid_one",
    "setns_net_of_pid_one",
    "mount_tmpfs",
    "new_mount_api",
    "clone_tree",
    "chroot",
    "bpf_map",
    "perf_event",
    "kernel_log",
    "packet_socket",
    "raw_socket",
    "shadow",
    "core_pattern",
    "sysrq",
    "kernel_message_device",
    "block_device",
    "make_block_device",
    "move_out_of_cgroup",
    "bpf_file_system",
    "hard_link_to_shadow",
    "become_root",
    "negative_nice",
    "real_time",
    "host_name",
    "memory_of_pid_one",
    "descriptors_of_pid_one",
    "namespaces_by_pidfd",
    "clone_network",
    "clone_mounts",
    "clone_pids",
    "unshare_time",
    "remount_writable",
    "open_by_handle",
    "bpf_program",
    "all_capabilities",
    "groups",
    "raise_limit",
    "real_time_io",
    "protect_from_oom",
    "new_link",
    "new_address",
    "new_rule",
    "hosts_file",
    "program_of_the_system",
    "overlay_redirect",
    "capability_on_a_file",
    "give_file_to_root",
    "loop_devices",
    "tunnel_device",
    "fuse_device",
    "virtual_machines",
    "physical_memory",
    "kernel_memory",
    "kernel_addresses",
    "sysctl_of_network",
    "sysctl_of_namespaces",
    "sysctl_of_modules",
]

# Cannot be tried outside without harm; the property is also shown by another test.
NO_CONTROL = [
    "kill_pid_one",
    "unmount_proc",
    "delete_own_link",
    "unknown_call",
    "descriptors_that_leaked",
]


def outside(probes: list[str], file: Path, uid: int) -> dict[str, list[Any]]:
    """The control: the same probes on the host; root's in a pid namespace, to have a pid 1."""
    own_pids = ["unshare", "--pid", "--fork", "--mount-proc"] if uid == 0 else []
    work = file.parent.parent / f"control-{uid}"
    work.mkdir()
    os.chown(work, uid, uid)
    done = subprocess.run(
        [*own_pids, PYTHON, "-I", "-S", file.with_name("probes.py"), file, ",".join(probes)],
        check=True,
        capture_output=True,
        user=uid,
        group=uid,
        extra_groups=[],
        start_new_session=True,
        cwd=work,
    )
    return dict(json.loads(done.stdout))


def test_no_attack_works_from_inside(box: MakeBox, place: Path, subtests: Any):
    with attacked(place, ALICE_ID) as (services, context):
        inside, controls = attack(box, place, services, context)
    escaped = {name: got for name, got in inside.items() if got[0]}
    weak = {name: got[1] for name, got in controls.items() if not got[0]}
    assert escaped == {}
    COUNTS["attacks refused inside, works outside"] = len(controls) - len(weak)
    COUNTS["attacks refused inside, works not even outside on this host"] = len(weak)
    COUNTS["attacks refused inside, not tried outside"] = len(inside) - len(controls)
    for name in inside:
        # pytest gives all skips of one place the label of the first: those have none.
        with subtests.test() if name in weak else subtests.test(name):
            if name in weak:
                pytest.skip(f"{name} works not even outside: {weak[name]}")


def attack(
    box: MakeBox, place: Path, services: Services, context: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every probe inside, then outside."""
    file = place / "granted" / "context.json"
    file.write_text(json.dumps(context))
    shutil.copy(PROBES, place / "granted" / "probes.py")
    names = [*PERSON, *ROOT, *NO_CONTROL]
    argv = [PYTHON, "-I", "-S", str(place / "granted" / "probes.py"), str(file), ",".join(names)]
    grants = (
        PathGrant(str(place / "granted"), "folder", "test"),
        PathGrant(str(place / "scratch"), "folder", "test"),
    )
    one = box(argv, read=grants)
    result = one.run()
    inside = json.loads(result.out)
    assert services.seen() == set(), "a service of the host was reached"
    controls = outside(PERSON, file, ALICE_ID) | outside(ROOT, file, 0)
    assert services.seen() >= set(REACHED)
    return inside, controls
