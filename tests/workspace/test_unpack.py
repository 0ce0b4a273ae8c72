"""A recorded folder is made anew from rows that nobody can trust, by a process without a right."""

from __future__ import annotations

import errno
import json
import os
import pwd
import random
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zstandard
from blake3 import blake3
from harness.running import need

from hark.errors import BundleInvalid, HarkError
from hark.launcher.ids import Slot, id_maps
from hark.replay.rebuild import _powerless
from hark.replay.stored import Collected, Stored
from hark.workspace import manifest
from hark.workspace.contents import Saved
from hark.workspace.unpack import Tree, children_of, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hark.bundle.reader import Bundle

FOLDER, FILE, LINK = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777
ROW = struct.Struct("<HHIQqqQIII")
MAGIC = b"hark-manifest-2\n"


class Rows:
    """A manifest under construction, with whatever is wanted in it."""

    def __init__(self) -> None:
        self.text = MAGIC
        self.count = 0
        self.add(b"", FOLDER)

    def add(self, path: bytes, mode: int, size: int = 0, **more: int) -> Rows:
        self.count += 1
        inode = more.get("inode", self.count)
        times = more.get("mtime", 5_000_000_000), 7
        owner = more.get("place", self.count), more.get("uid", 4100), more.get("gid", 4100)
        marks = more.get("marks", 0)
        self.text += ROW.pack(len(path), marks, mode, size, *times, inode, *owner) + path
        return self

    def packed(self) -> tuple[bytes, bytes]:
        data = zstandard.ZstdCompressor().compress(self.text)
        return data, blake3(data).digest()

    def read(self) -> manifest.Manifest:
        rows = manifest.parse(*self.packed())
        manifest.check(rows)
        return rows


HOSTILE: dict[str, Callable[[], Rows]] = {
    "the folder above": lambda: Rows().add(b"..", FOLDER).add(b"../x", FILE),
    "dots inside": lambda: Rows().add(b"a", FOLDER).add(b"a/..", FOLDER).add(b"a/../x", FILE),
    "itself": lambda: Rows().add(b".", FOLDER),
    "an absolute path": lambda: Rows().add(b"/etc/x", FILE),
    "an empty part": lambda: Rows().add(b"a", FOLDER).add(b"a//x", FILE),
    "a slash at the end": lambda: Rows().add(b"a", FOLDER).add(b"a/", FILE),
    "a zero byte": lambda: Rows().add(b"a\0b", FILE),
    "a name too long": lambda: Rows().add(b"x" * 256, FILE),
    "a path too long": lambda: deep(2100),
    "below a file": lambda: Rows().add(b"a", FILE).add(b"a/x", FILE),
    "below a link": lambda: Rows().add(b"a", LINK, 4).add(b"a/x", FILE),
    "below nothing": lambda: Rows().add(b"a/x", FILE),
    "below an unlisted folder": lambda: Rows().add(b"a", FOLDER, marks=2).add(b"a/x", FILE),
    "a name twice": lambda: Rows().add(b"a", FILE).add(b"a", FOLDER),
    "the folder twice": lambda: Rows().add(b"", FOLDER),
}


def deep(folders: int) -> Rows:
    rows = Rows()
    for number in range(1, folders):
        rows.add(b"/".join([b"d"] * number), FOLDER)
    return rows


@pytest.mark.parametrize("case", HOSTILE)
def test_rows_that_are_no_tree_are_refused(case: str):
    with pytest.raises(BundleInvalid, match="does not hold"):
        HOSTILE[case]().read()


def test_rows_without_the_folder_are_refused():
    rows = Rows()
    rows.text = MAGIC
    rows.add(b"a", FILE)
    with pytest.raises(BundleInvalid):
        rows.read()


def test_a_manifest_cut_or_changed_anywhere_gives_an_error_and_no_other():
    rows = Rows().add(b"a", FOLDER).add(b"a/x", FILE, 3).add(b"l", LINK, 1)
    text = rows.text
    rng = random.Random(7)  # noqa: S311
    for number in range(3000):
        rows.text = text[: number % len(text)] if number < len(text) else mutated(text, rng)
        try:
            read = rows.read()
        except BundleInvalid:
            continue
        assert children_of(read) is not None


def mutated(text: bytes, rng: random.Random) -> bytes:
    out = bytearray(text)
    for _ in range(rng.randint(1, 4)):
        out[rng.randrange(len(out))] = rng.randrange(256)
    return bytes(out)


def test_a_small_manifest_cannot_grow_without_bound():
    bomb = zstandard.ZstdCompressor().compress(MAGIC + bytes(400 << 20))
    assert len(bomb) < 1 << 20
    with pytest.raises(BundleInvalid) as told:
        manifest.parse(bomb, blake3(bomb).digest())
    assert "larger than" in told.value.cause


def test_what_is_no_zstd_is_refused():
    for data in (b"", b"x" * 100, MAGIC):
        with pytest.raises(BundleInvalid):
            manifest.parse(data, blake3(data).digest())


CONTENTS: dict[str, list[Any]] = {
    "no list": [7],
    "too short": [[b"a", 0, None]],
    "too long": [[b"a", 0, None, b"", 1]],
    "another state": [[b"a", 7, None, b""]],
    "no content": [[b"a", 0, None, None]],
    "a text path": [["a", 0, None, b""]],
    "a number for a digest": [[b"a", 2, 3, None]],
    "twice": [[b"a", 0, None, b""], [b"a", 0, None, b""]],
    "more after the end": [[b"a", 0, None, b""], [b"a", 1, None, b"x"]],
}


@pytest.mark.parametrize("case", CONTENTS)
def test_contents_that_contradict_themselves_are_refused(case: str):
    with pytest.raises(BundleInvalid):
        Collected().take({5: CONTENTS[case]})


@pytest.mark.parametrize(
    ("row", "content"),
    [
        ((b"a", FILE, 3), b"four"),
        ((b"a", FILE, 5), b"four"),
        ((b"b", FILE, 4), b"four"),
        ((b"a", FOLDER, 4), b"four"),
        ((b"a", stat.S_IFBLK | 0o666, 4), b"four"),
        ((b"a", LINK, 4), b"a\0bc"),
        ((b"a", LINK, 0), b""),
    ],
)
def test_contents_that_contradict_the_rows_are_refused(row: tuple[bytes, int, int], content: bytes):
    found = Collected()
    found.take({5: [[b"a", Saved.WHOLE, None, content]]})
    data, digest = Rows().add(*row).packed()
    with pytest.raises(BundleInvalid):
        Stored.of(no_bundle(), b"/w", data, digest, found)


def no_bundle() -> Bundle:
    """A bundle whose bodies all stand in its events."""

    class Plain:
        @staticmethod
        def read_body(body: bytes) -> bytes:
            return body

    return Plain()  # type: ignore[return-value]


# --- making it ------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Iterator[int]:
    """An empty folder, open."""
    (tmp_path / "root").mkdir()
    fd = os.open(tmp_path / "root", os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def made(place: int, rows: manifest.Manifest, **content: bytes) -> Any:
    tree = Tree(rows, lambda path: [content[path]], lambda _uid, _gid: (os.getuid(), os.getgid()))
    return unpack(place, tree)


def test_attributes(place: int, tmp_path: Path):
    rows = (
        Rows()
        .add(b"d", stat.S_IFDIR | 0o2711, mtime=1_000_000_007)
        .add(b"d/x", stat.S_IFREG | 0o6755, 3, mtime=-5)
        .add(b"l", LINK, 1, mtime=42)
        .add(b"p", stat.S_IFIFO | 0o640)
        .add(b"\xff\xfe", FILE)
        .add(b"same1", FILE, 1, inode=99)
        .add(b"same2", FILE, 1, inode=99)
        .read()
    )
    odd = os.fsdecode(b"\xff\xfe")
    content = {"d/x": b"abc", "l": b"d", odd: b"", "same1": b"s"}
    done = made(place, rows, **content)
    root = tmp_path / "root"
    assert (done.entries, done.left_out) == (7, 0)
    assert (root / "d").stat().st_mode == stat.S_IFDIR | 0o2711
    assert (root / "d").stat().st_mtime_ns == 1_000_000_007
    st = (root / "d" / "x").stat()
    assert st.st_mode == stat.S_IFREG | 0o755  # no set-id bits
    assert st.st_mtime_ns == -5
    assert (root / "l").lstat().st_mtime_ns == 42
    assert stat.S_ISFIFO((root / "p").lstat().st_mode)
    assert (root / odd).exists()
    assert (root / "same1").stat().st_ino == (root / "same2").stat().st_ino


def test_devices_and_sockets_are_left_out(place: int, tmp_path: Path):
    rows = Rows()
    for number, kind in enumerate((stat.S_IFBLK, stat.S_IFCHR, stat.S_IFSOCK, 0)):
        rows.add(b"%d" % number, kind | 0o666)
    assert made(place, rows.read()).left_out == 4
    assert not list((tmp_path / "root").iterdir())


def test_nothing_that_exists_is_written_or_followed(place: int, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("mine")
    root = tmp_path / "root"
    (root / "a").symlink_to(victim)
    (root / "b").symlink_to(victim / "file")
    (root / "c").symlink_to(victim / "new")
    for rows in (
        Rows().add(b"a", FOLDER).add(b"a/x", FILE, 1),
        Rows().add(b"b", FILE, 1),
        Rows().add(b"c", FILE, 1),
    ):
        with pytest.raises(FileExistsError):
            made(place, rows.read(), b=b"x", c=b"x", **{"a/x": b"x"})
    assert {path.name: path.read_text() for path in victim.iterdir()} == {"file": "mine"}


def test_a_folder_that_becomes_a_link_while_it_is_filled(place: int, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.mkdir()
    root = tmp_path / "root"
    rows = Rows().add(b"d", FOLDER).add(b"d/1", FILE, 1).add(b"d/2", FILE, 1).read()

    def content(path: str) -> list[bytes]:
        if path == "d/1":
            (root / "d").rename(root / "old")
            (root / "d").symlink_to(victim)
        return [b"x"]

    with pytest.raises(OSError, match=f"Errno ({errno.ELOOP}|{errno.EXDEV})"):
        unpack(place, Tree(rows, content, lambda _uid, _gid: (0, 0)))
    assert not list(victim.iterdir())


def test_more_content_than_the_row_says(place: int):
    rows = Rows().add(b"a", FILE, 3).read()
    for data in (b"ab", b"abcd"):
        with pytest.raises(BundleInvalid, match="a"):
            made(place, rows, a=data)
        os.unlink("a", dir_fd=place)


def test_random_trees_stay_inside(place: int, tmp_path: Path):
    """Whatever the rows say: an error of hark's, or a tree below the folder; never beside it."""
    canary = tmp_path / "canary"
    canary.write_text("here")
    rng = random.Random(11)  # noqa: S311
    parts = [b"a", b"b", b"..", b".", b"", b"/", b"\xff", b"a/b", b"../canary", b"x" * 255]
    modes = [FOLDER, FILE, LINK, stat.S_IFIFO | 0o600, stat.S_IFREG | 0o7777, stat.S_IFBLK, 0]
    good = 0
    for _ in range(1500):
        rows = Rows()
        for _ in range(rng.randint(1, 6)):
            path = b"/".join(rng.choices(parts, k=rng.choice([1, 1, 1, 2, 3])))
            rows.add(path, rng.choice(modes), 2, inode=rng.randint(1, 3))
        try:
            read = rows.read()
        except BundleInvalid:
            continue
        try:
            tree = Tree(read, lambda _: [b"..", b""], lambda _uid, _gid: (0, 0))
            unpack(place, tree)
            good += 1
        except (HarkError, OSError):
            pass
        assert sorted(path.name for path in tmp_path.iterdir()) == ["canary", "root"]
        assert canary.read_text() == "here"
        empty(tmp_path / "root")
    assert good > 20  # some of them were trees


def empty(root: Path) -> None:
    for folder, folders, files in os.walk(root, topdown=False):
        for name in files:
            Path(folder, name).unlink()
        for name in folders:
            path = Path(folder, name)
            path.unlink() if path.is_symlink() else path.rmdir()


# --- who makes it ---------------------------------------------------------------------------------


@pytest.mark.kernel
def test_the_process_that_unpacks_has_no_right_on_the_host(tmp_path: Path):
    """The positive control: without leaving root behind, the same calls succeed."""
    need("root", os.geteuid() == 0)
    tmp_path.chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o111)
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    open_one = tmp_path / "open"
    open_one.write_text("x")
    open_one.chmod(0o644)
    nobody = pwd.getpwnam("nobody").pw_uid

    def work() -> dict[str, int]:
        tries: dict[str, Callable[[], Any]] = {
            "read": secret.read_text,
            "write": lambda: open_one.write_text("y"),
            "own": lambda: os.chown(open_one, nobody, nobody),
            "device": lambda: os.mknod(tmp_path / "dev", stat.S_IFCHR, os.makedev(1, 3)),
            "make": lambda: (tmp_path / "new").write_text("x"),
            "signal": lambda: os.kill(os.getppid(), 0),
            "open": open_one.read_text,
        }
        out = {"uid": os.getuid()}
        for name, action in tries.items():
            try:
                action()
                out[name] = 0
            except OSError as error:
                out[name] = error.errno or -1
        return out

    control = work()
    assert {control[name] for name in ("read", "write", "own", "device", "make", "open")} == {0}
    for name in ("dev", "new"):
        (tmp_path / name).unlink()
    os.chown(open_one, 0, 0)
    slot = Slot(400)
    done = _powerless(work, id_maps(slot.base, 4100, 4100)[0], ())
    assert done.pop("uid") == 0  # in its own namespace
    assert done.pop("open") == 0
    assert set(done.values()) <= {errno.EACCES, errno.EPERM}
    assert open_one.read_text() == "y"


@pytest.mark.kernel
def test_what_goes_wrong_there_is_told():
    need("root", os.geteuid() == 0)
    maps = id_maps(Slot(401).base, 4100, 4100)[0]

    def hostile() -> dict[str, int]:
        raise BundleInvalid("the recorded workspace does not hold", "because")

    with pytest.raises(BundleInvalid, match="does not hold"):
        _powerless(hostile, maps, ())

    def broken() -> dict[str, int]:
        raise ValueError("a bug")

    with pytest.raises(HarkError, match="cannot be unpacked"):
        _powerless(broken, maps, ())

    def killed() -> dict[str, int]:
        os.kill(os.getpid(), 9)
        return {}

    with pytest.raises(HarkError, match="cannot be unpacked"):
        _powerless(killed, maps, ())
    assert json.dumps(_powerless(lambda: {"n": 1}, maps, ())) == '{"n": 1}'
