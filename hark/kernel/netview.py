"""The network rules of a run, tried with other tools than the launcher's: pyroute2 and nftables.

For ``hark doctor`` only: importing pyroute2 takes longer than starting a run. Everything happens in
a child in a network namespace of its own.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from hark.policy.privileges import leave_network

__all__ = ["routing_fault"]

_TABLE = 77
_RULES = """
table inet hark_doctor {
  chain pre {
    type filter hook prerouting priority mangle; policy drop;
    iifname "inner" meta l4proto tcp tproxy ip to 127.0.0.1:9 meta mark set 1 accept
    iifname "inner" meta l4proto tcp tproxy ip6 to [::1]:9 meta mark set 1 accept
    log group 1 prefix "doctor" reject
  }
}
"""


def routing_fault() -> str:
    """Return why any address cannot be led to one socket in a namespace; "" when it can."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, _try_all().encode()[:4096])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        fault = pipe.read().decode()
    os.waitpid(pid, 0)
    return "" if fault == "ok" else fault or "the probing process died"


def _try_all() -> str:
    try:
        leave_network()
        _build_links()
        _load_rules()
    except Exception as error:  # noqa: BLE001  a child reports whatever happens
        return f"{type(error).__name__}: {error}"
    return "ok"


def _build_links() -> None:
    from pyroute2 import IPRoute  # noqa: PLC0415  155 ms, see above

    with IPRoute() as ip:
        ip.link("add", ifname="outer", kind="veth", peer={"ifname": "inner"})
        inner = ip.link_lookup(ifname="inner")[0]
        lo = ip.link_lookup(ifname="lo")[0]
        for index in (lo, inner, ip.link_lookup(ifname="outer")[0]):
            ip.link("set", index=index, state="up")
        for family, everything in ((socket.AF_INET, "0.0.0.0/0"), (socket.AF_INET6, "::/0")):
            ip.rule("add", table=_TABLE, iifname="inner", priority=100, family=family)
            ip.route(
                "add", dst=everything, oif=lo, table=_TABLE, type="local", scope=254, family=family
            )
            _expect(ip, family)


def _expect(ip: Any, family: int) -> None:
    """Read back what was written."""
    rules = [r for r in ip.get_rules(family=family) if r.get_attr("FRA_IIFNAME") == "inner"]
    routes = list(ip.get_routes(family=family, table=_TABLE))
    if len(rules) != 1 or not routes:
        raise RuntimeError(f"the rule or route of family {family} is not there")


def _load_rules() -> None:
    import nftables  # noqa: PLC0415

    nft = nftables.Nftables()
    status, _, error = nft.cmd(_RULES)
    if status:
        raise RuntimeError(f"nftables: {error.strip().splitlines()[0]}")
