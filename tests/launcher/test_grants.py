"""Automatic grants, on a file system that exists only as a table."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from hark.errors import InputError
from hark.launcher.grants import Command, LocalFiles, Resolved, elf_needs, resolve, shown

HOME = "/home/alice"
WORK = "/home/alice/project"


class Table:
    """Paths to contents; a target starts with "->"; a name ending in "*" is executable."""

    def __init__(self, files: dict[str, str | bytes]) -> None:
        self.files = {
            k.rstrip("*"): v if isinstance(v, bytes) else v.encode() for k, v in files.items()
        }
        self.modes = {k[:-1] for k in files if k.endswith("*")}
        self.folders = {str(p) for k in self.files for p in Path(k).parents}

    def real(self, path: str) -> str:
        for _ in range(40):
            head = next(
                (p for p in [*reversed(Path(path).parents), Path(path)] if self.readlink(str(p))),
                None,
            )
            if head is None:
                return path
            target = self.readlink(str(head))
            rest = path[len(str(head)) :]
            path = os.path.normpath(head.parent / target) + rest
        return path

    def readlink(self, path: str) -> str | None:
        data = self.files.get(path, b"")
        return data[2:].decode() if data.startswith(b"->") else None

    def kind(self, path: str) -> str:
        path = self.real(path)
        return "file" if path in self.files else "folder" if path in self.folders else ""

    def executable(self, path: str) -> bool:
        return self.real(path) in self.modes

    def head(self, path: str, size: int) -> bytes:
        return self.files.get(self.real(path), b"")[:size]


BASE = {
    "/usr/bin/python3*": "\x7fELF",
    "/usr/bin/env*": "\x7fELF",
    "/bin/sh*": "",
    "/usr/bin/bash*": "",
}


def run(
    argv: list[str], files: dict[str, str | bytes], path: str = "/usr/bin:/bin", **more: str
) -> Resolved:
    command = Command(
        argv=tuple(argv), cwd=WORK, path=path, home=HOME, workspace=WORK, environment=more
    )
    return resolve(command, Table(BASE | files))


def paths(found: Resolved) -> dict[str, str]:
    return {g.path: g.kind for g in found.grants}


def test_a_system_program_needs_nothing():
    found = run(["python3", "agent.py"], {f"{WORK}/agent.py": ""})
    assert (found.file, found.argv, paths(found)) == (
        "/usr/bin/python3",
        ("python3", "agent.py"),
        {},
    )


def test_a_prefix_of_its_own_is_shown_whole():
    files = {
        f"{HOME}/.nvm/versions/node/v20/bin/node*": "\x7fELF",
        f"{HOME}/.nvm/versions/node/v20/lib/x": "",
    }
    found = run(["node"], files, f"{HOME}/.nvm/versions/node/v20/bin:/usr/bin")
    assert paths(found) == {f"{HOME}/.nvm/versions/node/v20": "folder"}
    assert found.path == f"{HOME}/.nvm/versions/node/v20/bin:/usr/bin"


def test_folders_of_many_things_are_not():
    files = {
        f"{HOME}/.cargo/bin/rg*": "\x7fELF",
        f"{HOME}/.local/bin/one*": "\x7fELF",
        f"{HOME}/bin/own*": "",
    }
    bins = f"{HOME}/.cargo/bin:{HOME}/.local/bin:{HOME}/bin"
    assert paths(run(["rg"], files, bins)) == {f"{HOME}/.cargo/bin/rg": "file"}
    assert paths(run(["one"], files, bins)) == {f"{HOME}/.local/bin/one": "file"}
    assert paths(run(["own"], files, bins)) == {f"{HOME}/bin/own": "file"}


@pytest.mark.parametrize("folder", [f"{HOME}/tools", "/opt/tools"])
def test_a_prefix_that_holds_secrets_is_not_shown(folder: str):
    files = {f"{folder}/bin/x*": "", f"{folder}/.ssh/id": "key"}
    assert paths(run([f"{folder}/bin/x"], files)) == {f"{folder}/bin/x": "file"}


def test_an_env_line_is_followed_with_its_options():
    files = {f"{WORK}/s*": "#!/usr/bin/env -S A=1 py\n", f"{HOME}/py3/bin/py*": "\x7fELF"}
    assert paths(run(["./s"], files, f"{HOME}/py3/bin")) == {f"{HOME}/py3": "folder"}


def test_a_script_of_the_workspace_with_an_interpreter_elsewhere():
    files = {f"{WORK}/s*": f"#!{HOME}/x/bin/interp -u\n", f"{HOME}/x/bin/interp*": "\x7fELF"}
    found = run(["./s"], files)
    assert (found.file, paths(found)) == (f"{WORK}/s", {f"{HOME}/x": "folder"})


def test_an_endless_chain_is_an_error():
    with pytest.raises(InputError, match="does not end"):
        run(["./s"], {f"{WORK}/s*": f"#!{WORK}/s\n"})


def test_a_venv_brings_the_python_it_was_made_from():
    files = {
        f"{WORK}/venv/bin/python*": f"->{HOME}/.pyenv/versions/3.11.7/bin/python3.11",
        f"{WORK}/venv/pyvenv.cfg": f"home = {HOME}/.pyenv/versions/3.11.7/bin\nversion = 3.11.7\n",
        f"{HOME}/.pyenv/versions/3.11.7/bin/python3.11*": "\x7fELF",
        f"{HOME}/.pyenv/versions/3.11.7/bin/python3*": "->python3.11",
    }
    found = run(["venv/bin/python", "a.py"], files)
    assert found.file == f"{WORK}/venv/bin/python"
    assert paths(found)[f"{HOME}/.pyenv/versions/3.11.7"] == "folder"


def test_a_venv_elsewhere_is_decided_by_the_link():
    files = {
        f"{HOME}/envs/a/bin/python*": "->/usr/bin/python3",
        f"{HOME}/envs/a/pyvenv.cfg": "home = /usr/bin\n",
    }
    assert paths(run([f"{HOME}/envs/a/bin/python"], files)) == {f"{HOME}/envs/a": "folder"}


@pytest.mark.parametrize("base", [f"{HOME}/here", f"{WORK}/.venv"])
def test_a_venv_behind_a_link_is_shown_where_it_is(base: str):
    """A link in the workspace is there already; elsewhere it is made."""
    files = {
        base: "->/data/real",
        "/data/real/bin/python*": "->/usr/bin/python3",
        "/data/real/pyvenv.cfg": "home = /usr/bin\n",
    }
    found = run([f"{base}/bin/python"], files)
    assert found.file == f"{base}/bin/python"
    link = {} if base.startswith(WORK) else {base: "link"}
    assert paths(found) == {"/data/real": "folder", **link}


def test_pipx_is_link_script_venv_and_base():
    venv = f"{HOME}/.local/pipx/venvs/tool"
    files = {
        f"{HOME}/.local/bin/tool*": f"->{venv}/bin/tool",
        f"{venv}/bin/tool*": f"#!{venv}/bin/python\nimport tool\n",
        f"{venv}/bin/python*": "->/usr/bin/python3",
        f"{venv}/pyvenv.cfg": "home = /usr/bin\n",
    }
    found = run(["tool"], files, f"{HOME}/.local/bin")
    assert paths(found) == {f"{HOME}/.local/bin/tool": "link", venv: "folder"}
    link = next(g for g in found.grants if g.kind == "link")
    assert link.target == f"{venv}/bin/tool"


@pytest.mark.parametrize(
    ("environment", "extra", "version"),
    [
        ({}, {}, "3.11.7"),
        ({"PYENV_VERSION": "3.12.1"}, {}, "3.12.1"),
        ({}, {f"{WORK}/.python-version": "3.12.1\n"}, "3.12.1"),
        ({}, {f"{HOME}/.python-version": "3.12.1\n"}, "3.12.1"),
    ],
)
def test_a_pyenv_shim_is_replaced_by_what_it_runs(
    environment: dict[str, str], extra: dict[str, str | bytes], version: str
):
    root = f"{HOME}/.pyenv"
    files: dict[str, str | bytes] = {
        f"{root}/shims/python3*": "#!/usr/bin/env bash\nexec pyenv exec python3\n",
        f"{root}/version": "3.11.7\n",
        f"{root}/versions/3.11.7/bin/python3*": "\x7fELF",
        f"{root}/versions/3.12.1/bin/python3*": "\x7fELF",
    }
    found = run(["python3", "-V"], files | extra, f"{root}/shims:/usr/bin", **environment)
    assert found.file == f"{root}/versions/{version}/bin/python3"
    assert paths(found) == {f"{root}/versions/{version}": "folder"}
    assert found.notes
    assert found.argv == (found.file, "-V"), "Python finds its library by argv[0]"
    assert found.path == f"{root}/versions/{version}/bin:/usr/bin"


def test_node_packages_come_with_the_file_that_sets_their_type():
    top = "/srv/app"
    files = {
        f"{top}/node_modules/.bin/cli*": "->../cli/index.js",
        f"{top}/node_modules/cli/index.js*": "#!/usr/bin/env node\n",
        f"{top}/package.json": "{}",
        "/usr/bin/node*": "\x7fELF",
    }
    found = run([f"{top}/node_modules/.bin/cli"], files)
    assert paths(found)[f"{top}/node_modules"] == "folder"
    assert paths(found)[f"{top}/package.json"] == "file"


def test_an_argument_that_names_a_file_outside_shows_that_file():
    files = {f"{HOME}/tools/x.py": "", f"{HOME}/tools/y.py": ""}
    assert paths(run(["python3", f"{HOME}/tools/x.py", "-v"], files)) == {
        f"{HOME}/tools/x.py": "file"
    }
    assert paths(run(["python3", "../tools/y.py"], files)) == {f"{HOME}/tools/y.py": "file"}


@pytest.mark.parametrize("secret", [".ssh", ".aws", ".config/gh"])
def test_a_program_inside_a_folder_of_secrets_shows_only_itself(secret: str):
    files = {f"{HOME}/{secret}/bin/x*": "", f"{HOME}/{secret}/key": ""}
    assert paths(run([f"{HOME}/{secret}/bin/x"], files)) == {f"{HOME}/{secret}/bin/x": "file"}


def test_missing_and_unexecutable_programs_have_the_shells_codes():
    with pytest.raises(InputError, match="no such program") as missing:
        run(["nosuch"], {})
    assert missing.value.exit_code == 127
    with pytest.raises(InputError, match="not executable") as forbidden:
        run(["./data"], {f"{WORK}/data": "text"})
    assert forbidden.value.exit_code == 126
    assert "chmod" in forbidden.value.hint
    with pytest.raises(InputError, match="is a folder"):
        run(["../project"], {f"{WORK}/x": ""})


def test_paths_of_a_policy_are_shown_with_the_links_to_them():
    files = Table({"/data/real/x": "", "/data/link": "->real", "/one": ""})
    found = shown(["/data/link", "/one", "/absent"], files, "policy")
    assert [(g.path, g.kind, g.target) for g in found] == [
        ("/data/real", "folder", ""),
        ("/data/link", "link", "/data/real"),
        ("/one", "file", ""),
    ]


def elf(interp: bytes, runpath: bytes) -> bytes:
    strings = b"\0" + runpath + b"\0"
    text, dyn, tab = 0x200, 0x300, 0x400
    dynamic = struct.pack("<qQqQqQ", 5, 0x400000 + tab, 29, 1, 0, 0)
    heads = [(3, text, 0, len(interp) + 1), (2, dyn, 0, len(dynamic)), (1, 0, 0x400000, 0x1000)]
    out = bytearray(0x600)
    out[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", out, 32, 64)
    struct.pack_into("<HH", out, 54, 56, len(heads))
    for n, (kind, offset, address, size) in enumerate(heads):
        struct.pack_into("<IIQQQQ", out, 64 + n * 56, kind, 0, offset, address, 0, size)
    out[text : text + len(interp)] = interp
    out[dyn : dyn + len(dynamic)] = dynamic
    out[tab : tab + len(strings)] = strings
    return bytes(out)


def test_elf_interpreter_and_run_path():
    data = elf(b"/opt/ld.so", b"$ORIGIN/../lib:/opt/lib:rel")
    assert elf_needs(data) == ("/opt/ld.so", ["$ORIGIN/../lib", "/opt/lib"])
    files = {"/opt/app/sub/x*": data, "/opt/app/lib/y": "", "/opt/lib/z": "", "/opt/ld.so": ""}
    assert paths(run(["/opt/app/sub/x"], files)) == {
        "/opt/app/sub/x": "file",
        "/opt/ld.so": "file",
        "/opt/app/lib": "folder",
        "/opt/lib": "folder",
    }


def test_cut_and_changed_elf_files_are_no_error():
    data = elf(b"/opt/ld.so", b"/opt/lib")
    for n in range(0, len(data), 3):
        elf_needs(data[:n])
    for n in range(300):
        elf_needs(data[:n] + b"\xff" + data[n + 1 :])


def test_this_machines_python_resolves():
    command = Command(
        argv=("/usr/bin/python3",),
        cwd="/",
        path="/usr/bin",
        home="/nonexistent",
        workspace="/srv/none",
    )
    found = resolve(command, LocalFiles())
    assert (found.file, found.grants) == ("/usr/bin/python3", ())
