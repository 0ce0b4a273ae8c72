"""The store is what Java's own tool reads."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from stub.authority import Authority

from hark.policy.java_store import java_store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("password", ["changeit", "wrong-password"])
def test_keytool_reads_it(tmp_path: Path, password: str) -> None:
    keytool = shutil.which("keytool")
    if keytool is None:
        pytest.skip("needs keytool")
    authority = Authority(tmp_path / "ca")
    store = tmp_path / "cacerts"
    store.write_bytes(java_store(authority.ca_file.read_bytes()))
    done = subprocess.run(
        [keytool, "-list", "-keystore", str(store), "-storepass", password],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (password == "changeit"), done.stdout  # noqa: S105
    assert ("hark" in done.stdout and "trustedCertEntry" in done.stdout) == (done.returncode == 0)
