"""What of a workspace is kept: by name, by Git's rules, by content."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from harness.running import need

from hark.workspace.tiers import Tier, Tiers, holds_secret, is_secret_name

if TYPE_CHECKING:
    from pathlib import Path

SECRETS = """
.env .env.local prod.env a/.aws/config b/.ssh/known_hosts id_ed25519 server.key cert.pem .netrc
.npmrc credentials.json x/my-credentials.json terraform.tfstate Secrets.yaml .git-credentials
""".split()  # noqa: SIM905
PLAIN = """
.env.example id_rsa.pub keyboard.py environment.py main.py src/config.json README.md tokenizer.json
.git/config secretary.txt
""".split()  # noqa: SIM905


@pytest.mark.parametrize("path", SECRETS)
def test_the_shape_of_a_secret(path: str):
    assert is_secret_name(path)
    assert Tiers(named={path}).of(path) is Tier.SECRET  # also when the command names it


@pytest.mark.parametrize("path", PLAIN)
def test_no_shape_of_a_secret(path: str):
    assert not is_secret_name(path)


def test_a_secret_is_known_by_its_content():
    key = b"x\n-----BEGIN OPENSSH PRIVATE KEY-----\n"
    assert holds_secret("notes.txt", key, ())
    assert not holds_secret("notes.txt", b"-----BEGIN CERTIFICATE-----", ())
    assert holds_secret("a.py", b'key = "sk-12345678"', (b"sk-12345678",))
    assert not holds_secret("a.py", b'key = "sk-12345679"', (b"sk-12345678",))
    url = b"[remote]\n url = https://me:token@host.example/x\n"
    assert holds_secret(".git/config", url, ())
    assert not holds_secret(".git/config", b"url = https://host.example/x@y\n", ())
    assert not holds_secret("docs/config", url, ())


def test_packages_caches_and_objects_are_ignored():
    tiers = Tiers()
    assert tiers.learn(["env/pyvenv.cfg", "out/CACHEDIR.TAG", "pyvenv.cfg"]) == []
    for path in (
        "node_modules/a/index.js",
        "web/node_modules/a",
        "env/lib/x.py",
        "out/x",
        ".git/objects/aa/bb",
        ".git/modules/sub/objects/pack/x",
        "a/__pycache__/m.pyc",
    ):
        assert tiers.of(path) is Tier.IGNORED, path
    for path in (".git/HEAD", ".git/refs/heads/main", "objects/x", "x.py", "environment/x"):
        assert tiers.of(path) is Tier.KEPT, path


TREE = """
a.o keep.o src/b.o src/keep.o build/x build/deep/y dist/z src/dist/z local/a src/local/a
logs/today.log logs/keep/log.txt deep/er/x.tmp deep/er/y.txt private.txt sub/private.txt
sub/only.c sub/inner/only.c wild/card1 wild/card2 space\\x20name é.bak
""".split()  # noqa: SIM905
RULES = {
    ".gitignore": "*.o\n!keep.o\nbuild/\n/dist\n/local\n*.log\n**/er/*.tmp\nwild/card?\n*.bak\n",
    "sub/.gitignore": "/only.c\n!private.txt\n",
    ".git/info/exclude": "private.txt\n",
}


def test_ignored_is_what_git_ignores(tmp_path: Path):
    """The witness is Git itself."""
    git = shutil.which("git")
    need("git", git is not None)
    subprocess.run([git, "init", "-q", tmp_path], check=True)
    for path, text in [(name, "") for name in TREE] + list(RULES.items()):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    asked = "\0".join(TREE).encode()
    done = subprocess.run(
        [git, "check-ignore", "-z", "--stdin"],
        cwd=tmp_path,
        input=asked,
        check=False,
        capture_output=True,
    )
    expected = {name.decode() for name in done.stdout.split(b"\0") if name}
    assert len(expected) > 8
    tiers = Tiers()
    for path in tiers.learn([*TREE, *RULES]):
        tiers.add_rules(path, RULES[path].encode())
    assert {path for path in TREE if tiers.of(path) is Tier.IGNORED} == expected


def test_rules_that_are_no_rules_are_left_out():
    tiers = Tiers()
    tiers.add_rules(".gitignore", b"[\n\xff\xfe\n\\\n!\n*.o\n" + b"a" * 100_000)
    assert tiers.of("x.o") is Tier.IGNORED
    assert tiers.of("x.c") is Tier.KEPT


def test_what_the_command_names_is_kept():
    tiers = Tiers(named={"build/agent.py"})
    tiers.add_rules(".gitignore", b"build/\n")
    assert tiers.of("build/agent.py") is Tier.KEPT
    assert tiers.of("build/other.py") is Tier.IGNORED
