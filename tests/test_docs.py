"""The docs point at things that exist, and name every dependency."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("demo/*.md")])
NAMED = re.compile(r"`((?:tests|csrc|hark|bpf|demo|docs|shim|\.ci)/[\w./*-]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def named_paths(text: str) -> list[str]:
    """Paths of this project in code quotes; a name that ends in a number is a hash domain."""
    return [path for path in NAMED.findall(text) if not path.rpartition("/")[2].isdigit()]


def test_the_pattern_finds_paths():
    """Positive control."""
    assert named_paths(
        "see `tests/escape` and `hark/cli/app.py`, not `/etc/hosts` or `hark/x/2`"
    ) == [
        "tests/escape",
        "hark/cli/app.py",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_named_in_docs_exist(page: Path):
    missing = [path for path in named_paths(page.read_text()) if not list(ROOT.glob(path))]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    missing = [
        target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_nothing_is_called_bit_exact(page: Path):
    """Determinism is a property of the harness; the word would claim more."""
    assert "bit-exact" not in page.read_text()


def test_each_security_claim_names_its_test():
    page = (ROOT / "docs/threat-model.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    bare = [row for row in rows if "`tests/" not in row.rsplit("|", 2)[1]]
    assert not bare


def test_every_page_is_in_the_readmes_table():
    shown = (ROOT / "README.md").read_text()
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/guide/*.md"), *ROOT.glob("docs/spec/*.md")]
    names = [str(page.relative_to(ROOT)) for page in pages]
    assert not [name for name in names if f"({name})" not in shown]


@pytest.mark.parametrize("name", ["run.in", "dev.in"])
def test_every_python_dependency_has_a_reason(name: str):
    reasons = (ROOT / "docs/dependencies.md").read_text()
    lines = (ROOT / ".ci/requirements" / name).read_text().splitlines()
    names = [re.split(r"[=<> ]", line)[0] for line in lines if line and line[0] not in "#-"]
    assert names
    assert not [package for package in names if package not in reasons]


@pytest.mark.parametrize("name", ["debian-run.txt", "debian-test.txt"])
def test_every_debian_package_has_a_reason(name: str):
    reasons = (ROOT / "docs/dependencies.md").read_text()
    packages = (ROOT / ".ci" / name).read_text().split()
    assert not [package for package in packages if package not in reasons]


def test_decisions_have_numbers_of_their_own():
    """The number of an ADR is in its file name and in its title, and in no other one's."""
    pages = sorted((ROOT / "docs/adr").glob("*.md"))
    titles = {page.name: page.read_text().splitlines()[0] for page in pages}
    assert all(title.startswith(f"# {int(name[:4])}. ") for name, title in titles.items())
    assert len({name[:4] for name in titles}) == len(titles)
