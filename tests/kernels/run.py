"""`make test-kernels`: the sensor suite on older kernels, in virtual machines, with its counts.

The same BPF object and the same tests as on this host, on kernels of Debian. The machine is
emulated (TCG), so it needs no virtualisation and takes minutes. A kernel that this Debian's archive
does not have is said to be missing, and the target then fails unless HARK_KERNELS names fewer.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from image import ROOT, collect, imported, pack, pack_files

BUILD = ROOT / "build" / "kernels"
SUITE = "tests/sensors"
# Waits for a disk, and the machine has none.
LEFT_OUT = "test_the_mutant_that_takes_a_disk_for_idle_fails"
# Release to the package that depends on its newest image, by the distribution's version.
PACKAGES = {
    "12": {"6.1": "linux-image-cloud-amd64", "6.12": "linux-image-6.12-cloud-amd64"},
    "13": {"6.12": "linux-image-cloud-amd64"},
}
DEADLINE_S = 2400
MEMORY_MB = 3000
INIT = """#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /tmp /run /root
mount -t devpts pts /dev/pts
mount -t tmpfs tmp /dev/shm
mount -t tmpfs run /run
mount -t cgroup2 none /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
ip link set lo up
cd {root}
echo "HARK kernel $(uname -r)"
{python} -c "import ctypes, os; \\
  print('overlay', ctypes.CDLL(None).syscall(313, os.open('/overlay.ko', 0), b'', 0))"
HARK_REQUIRE=kernel HARK_TEST_SLOWER=20 HARK_TEST_WORKLOAD={workload} {python} -m pytest \\
    -q -p no:cacheprovider --color=no --basetemp=/run/tests -o timeout=0 -k "not {left_out}" {suite}
echo "HARK status $?"
echo o > /proc/sysrq-trigger
sleep 60
"""


def main() -> int:
    """Run the suite on every kernel; 0 when all of it passed on all."""
    version = debian_version()
    wanted = os.environ.get("HARK_KERNELS", "6.1,6.12").split(",")
    results = {}
    with tempfile.TemporaryDirectory(prefix="hark-kernels-") as folder:
        archive = make_archive(Path(folder))
        for release in wanted:
            package = PACKAGES.get(version, {}).get(release)
            results[release] = boot(kernel(package), archive) if package else "not in this archive"
    for release, result in results.items():
        sys.stdout.write(f"kernel {release}: {result}\n")
    return 0 if all("status 0" in result for result in results.values()) else 1


def debian_version() -> str:
    """Return the number of this Debian."""
    found = re.search(r'^VERSION_ID="?(\d+)', Path("/etc/os-release").read_text(), re.MULTILINE)
    return found[1] if found else ""


def kernel(package: str) -> Path:
    """Fetch the newest image that ``package`` depends on; return its kernel."""
    BUILD.mkdir(parents=True, exist_ok=True)
    told = subprocess.run(
        ["apt-cache", "depends", package], capture_output=True, text=True, check=True
    )
    image = re.search(r"Depends: (linux-image-\S+)", told.stdout)
    assert image, f"{package} depends on no image"
    folder = BUILD / image[1]
    if not folder.exists():
        subprocess.run(["apt-get", "download", "-q", image[1]], cwd=BUILD, check=True)
        (deb,) = BUILD.glob(f"{image[1]}_*.deb")
        subprocess.run(["dpkg", "-x", deb, folder.with_suffix(".new")], check=True)
        folder.with_suffix(".new").rename(folder)
        deb.unlink()
    (found,) = (folder / "boot").glob("vmlinuz-*")
    return found


def make_archive(folder: Path) -> Path:
    """Build the root file system and pack it."""
    workload = folder / "workload"
    source = ROOT / SUITE / "workload.c"
    subprocess.run(["gcc", "-O1", "-pthread", source, "-o", workload], check=True)
    root = folder / "root"
    collect(root, imported(SUITE), [workload])
    for name in ("proc", "sys", "dev", "tmp", "run", "etc", "var/tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("passwd", "group", "ld.so.cache", "ld.so.conf"):
        shutil.copy2(Path("/etc", name), root / "etc" / name)
    for link in ("bin", "sbin", "lib", "lib64"):  # a merged /usr
        if Path("/", link).is_symlink():
            merge(root, link)
    init = root / "init"
    init.write_text(
        INIT.format(
            root=ROOT, workload=workload, python=sys.executable, suite=SUITE, left_out=LEFT_OUT
        )
    )
    init.chmod(0o755)
    archive = folder / "root.cpio"
    with archive.open("wb") as out:
        pack(root, out)
    return archive


def merge(root: Path, name: str) -> None:
    """Make ``/name`` the link that it is on this host, with what was put behind it."""
    behind, there = root / name, root / "usr" / name
    if behind.is_dir() and not behind.is_symlink():
        shutil.copytree(behind, there, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(behind)
    if not behind.is_symlink():
        behind.symlink_to(f"usr/{name}")


def boot(image: Path, archive: Path) -> str:
    """Boot and wait for the end; return the release, the counts and the status, in words."""
    with tempfile.NamedTemporaryFile(prefix="hark-kernels-", suffix=".cpio") as initrd:
        with archive.open("rb") as base:
            shutil.copyfileobj(base, initrd)
        pack_files({"overlay.ko": module(image, "overlay")}, initrd)
        initrd.flush()
        return emulate(image, Path(initrd.name))


def module(image: Path, name: str) -> bytes:
    """Return a module of a kernel, as insmod takes it."""
    (found,) = image.parents[1].rglob(f"{name}.ko*")
    data = found.read_bytes()
    return lzma.decompress(data) if found.suffix == ".xz" else data


def emulate(image: Path, archive: Path) -> str:
    """Run the virtual machine to its end; return what is to tell of it."""
    words = [
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"),
        *("-m", str(MEMORY_MB), "-nographic", "-no-reboot", "-nic", "none"),
        *("-kernel", str(image), "-initrd", str(archive)),
        *("-append", "console=ttyS0 quiet panic=-1 sysrq_always_enabled=1"),
    ]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False
    )
    text = done.stdout.decode(errors="replace").replace("\r", "")
    sys.stdout.write(text[text.find("HARK kernel") :] if "HARK kernel" in text else text)
    release = re.search(r"HARK kernel (\S+)", text)
    counts = re.findall(r"^(?:=+ )?(\d+ (?:passed|failed).*? in .*?)(?: =+)?$", text, re.MULTILINE)
    status = re.search(r"HARK status (\d+)", text)
    if not release or not status:
        return f"did not come to an end (qemu {done.returncode})"
    return f"{release[1]}: {counts[-1] if counts else 'no counts'}, status {status[1]}"


if __name__ == "__main__":
    sys.exit(main())
