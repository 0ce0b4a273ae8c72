"""Which files of a workspace have their content kept at the start, and which only a digest.

Pure. ``kept``: everything, but for three groups. ``ignored``: what can be made again, and what the
person shares with nobody: folders of packages and caches, the objects of a Git repository, and
whatever ``.gitignore`` names (pathspec has Git's rules). ``secret``: what has the shape of a
credential, by its name; its content never goes into a bundle. Rules: paths are relative to the
workspace; a word of the agent's command is kept, unless it is secret.
"""

from __future__ import annotations

import fnmatch
import os
import re
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pathspec import GitIgnoreSpec
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

__all__ = ["IGNORE_FILE", "Tier", "Tiers", "holds_secret", "is_secret_name"]

IGNORE_FILE = ".gitignore"
_EXCLUDE_FILE = ".git/info/exclude"
_MARKERS = ("pyvenv.cfg", "CACHEDIR.TAG")  # a virtual environment; https://bford.info/cachedir/


class Tier(IntEnum):
    """What of a file goes into the bundle."""

    KEPT = 0
    IGNORED = 1
    SECRET = 2


_FOLDERS = frozenset(
    """
    node_modules bower_components .pnpm-store .yarn __pypackages__ site-packages __pycache__
    .venv .virtualenv .tox .nox .mypy_cache .pytest_cache .ruff_cache .hypothesis .ipynb_checkpoints
    .cache .parcel-cache .turbo .next .nuxt .svelte-kit .gradle .terraform .direnv .dart_tool
    .bundle .stack-work .eggs .angular .nx
    """.split()  # noqa: SIM905 - a table for people
)
_GIT_FOLDERS = frozenset(("objects", "lfs", "annex"))
_SECRET_NAMES = """
    .env .env.* .envrc *.env *.pem *.key *.p12 *.pfx *.p8 *.jks *.keystore *.kdbx *.ppk *.asc *.gpg
    id_rsa id_dsa id_ecdsa id_ed25519 id_*_sk .netrc _netrc .npmrc .yarnrc.yml .pypirc .pgpass
    .my.cnf .git-credentials .htpasswd .dockercfg .s3cfg .boto .vault-token .terraformrc
    credentials credentials.* credentials-* *-credentials.json *_credentials.json auth.json
    client_secret*.json service-account*.json service_account*.json secret secrets secret.*
    secrets.* *.secret *.secrets token.json *.tfstate *.tfstate.* *.tfvars kubeconfig *.kubeconfig
    """.split()  # noqa: SIM905 - a table for people
_SECRET_FOLDERS = frozenset((".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".gcloud"))
_PATTERNS = "|".join(fnmatch.translate(name) for name in _SECRET_NAMES)
_SECRET = re.compile(_PATTERNS)
_NO_SECRET = re.compile(r".*\.(example|sample|template|dist|pub)")
_URL_PASSWORD = re.compile(rb"://[^/\s:@]*:?[^/\s@]+@")
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----")


def is_secret_name(path: str) -> bool:
    """Whether a path has the shape of a credential."""
    *folders, name = path.casefold().split("/")
    if any(folder in _SECRET_FOLDERS for folder in folders):
        return True
    return bool(_SECRET.fullmatch(name)) and not _NO_SECRET.fullmatch(name)


def holds_secret(path: str, content: bytes, known: Iterable[bytes]) -> bool:
    """Whether content is a private key, or holds one of the run's own secrets as it is.

    Of Git's own configuration also: whether an address in it has a user or password.
    """
    if path.rpartition("/")[2] == "config" and ".git" in path.split("/"):
        return bool(_URL_PASSWORD.search(content)) or any(value in content for value in known)
    return bool(_PRIVATE_KEY.search(content)) or any(value in content for value in known)


@dataclass(slots=True)
class Tiers:
    """Decides by path. ``named``: paths that the command names.

    ``marked`` are folders with a marker file in them; ``rules`` belong to the folder they lie in.
    """

    named: Collection[str] = ()
    marked: set[str] = field(default_factory=set)
    rules: dict[str, GitIgnoreSpec] = field(default_factory=dict)
    _folders: dict[str, bool] = field(default_factory=dict)

    def learn(self, paths: Iterable[str]) -> list[str]:
        """Take note of marked folders; return the files that hold rules, outer ones first."""
        found = []
        for path in paths:
            folder, _, name = path.rpartition("/")
            if name in _MARKERS and folder:
                self.marked.add(folder)
            if name == IGNORE_FILE or path == _EXCLUDE_FILE:
                found.append(path)
        return sorted(found, key=lambda path: path.count("/"))

    def add_rules(self, path: str, text: bytes) -> None:
        """Take the lines of a rule file."""
        from pathspec import GitIgnoreSpec  # noqa: PLC0415 - only where there are rules

        folder = "" if path == _EXCLUDE_FILE else path.rpartition("/")[0]
        patterns = _spec(os.fsdecode(text).splitlines())
        before = self.rules.get(folder)
        if before is not None:  # the last line that fits decides: what .gitignore says comes last
            ours = list(before.patterns)
            patterns = [*patterns, *ours] if path == _EXCLUDE_FILE else [*ours, *patterns]
        self.rules[folder] = GitIgnoreSpec(patterns)

    def of(self, path: str) -> Tier:
        """Return the tier of a file or link."""
        if is_secret_name(path):
            return Tier.SECRET
        if path in self.named:
            return Tier.KEPT
        folder = path.rpartition("/")[0]
        if self._skips(folder) or self._is_ignored(path):
            return Tier.IGNORED
        return Tier.KEPT

    def _skips(self, folder: str) -> bool:
        """Whether all below a folder is ignored; remembered, since many files ask."""
        if not folder:
            return False
        known = self._folders.get(folder)
        if known is None:
            above, _, name = folder.rpartition("/")
            in_git = name in _GIT_FOLDERS and ".git" in above.split("/")
            by_name = name in _FOLDERS or in_git or folder in self.marked
            known = by_name or self._skips(above) or self._is_ignored(f"{folder}/")
            self._folders[folder] = known
        return known

    def _is_ignored(self, path: str) -> bool:
        """Ask the rules of the folders above, the nearest first: its last word counts."""
        if not self.rules or path.startswith(".git/"):
            return False
        folder = path.rstrip("/").rpartition("/")[0]
        while True:
            rules = self.rules.get(folder)
            if rules is not None:
                inner = path[len(folder) + 1 :] if folder else path
                said = rules.check_file(inner).include
                if said is not None:
                    return said
            if not folder:
                return False
            folder = folder.rpartition("/")[0]


def _spec(lines: list[str]) -> list[GitIgnoreSpecPattern]:
    """Return the patterns of lines; one that Git would not understand either is left out."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415

    out: list[GitIgnoreSpecPattern] = []
    for line in lines:
        try:
            out += GitIgnoreSpec.from_lines([line]).patterns
        except (ValueError, re.error):
            continue
    return out
