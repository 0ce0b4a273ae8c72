"""One record/replay pair of a shape, in a world of its own, as a person would make it.

Rules. A fresh service, workspace and bundle for every pair. The service is still there while the
replay runs, and counts connections: the witness that nothing is dialled. What runs kept is
discarded.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fidelity_service import API, MCP, NEWS, OTHER, Service
from harness.running import PYTHON, ROOT, environment, hark, need, need_program, upstreams
from ulid import ULID

from hark.bundle.reader import Bundle
from hark.locations import RUNS

if TYPE_CHECKING:
    from types import TracebackType

    from fidelity_shapes import Shape

__all__ = ["POLICY", "Pair", "Programs", "Result", "Said"]

AGENTS = Path(__file__).parent / "agents"
CLIENTS = ROOT / "tests" / "interop" / "clients"
VENV = Path(os.environ.get("HARK_AGENTS_VENV") or ROOT / ".venv-agents")
MINI = {  # mini-swe-agent: no question, no price list, no first start
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MSWEA_CONFIGURED": "true",
    "MSWEA_COST_TRACKING": "ignore_errors",
    "MSWEA_SILENT_STARTUP": "1",
}
TASK = """Count the page.
stub-call bash {"command": "curl -sS https://news.example/page | wc -c >seen; date; echo $$"}
stub-call bash {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo seen $(cat seen)"}
"""
POLICY = f"""
allow_hosts = ["{API}", "{NEWS}", "{OTHER}", "{MCP}"]
pass_env = {json.dumps(["SIZE", *MINI])}

[secrets.openai]
env = "OPENAI_API_KEY"
hosts = ["{API}"]
header = ["authorization", "x-api-key", "x-goog-api-key"]
"""
DEADLINE_S = 600  # for 100 MB on a busy machine; no verdict depends on it
_SUFFIX = {"python": ".py", "node": ".mjs", "sh": ".sh"}


@dataclass(frozen=True, slots=True)
class Said:
    """What one ``hark replay --json`` said. ``error``: its stderr when it said nothing."""

    status: int
    verdict: dict[str, Any]
    error: str
    dialled: int

    @property
    def line(self) -> str:
        """The claim, or why there is none."""
        return str(self.verdict.get("verdict") or f"status {self.status}: {self.error.strip()}")

    @property
    def first(self) -> dict[str, Any]:
        """The divergence, empty when there is none."""
        found: dict[str, Any] = self.verdict.get("divergence") or {}
        return found

    def titles(self) -> list[str]:
        """Titles of the action on both sides."""
        sides = (self.first.get("now"), self.first.get("recorded"))
        return [side["title"] for side in sides if side]


@dataclass(frozen=True, slots=True)
class Result:
    """A pair. ``missing``: what the recording lacked of its shape; then it counts as failed."""

    missing: str
    said: Said | None

    @property
    def is_equal(self) -> bool:
        """Whether the shape happened and its replay was equal without a dial."""
        said = self.said
        return not self.missing and said is not None and said.status == 0 and not said.dialled

    def text(self) -> str:
        """One line for the table of results."""
        if self.missing or self.said is None:
            return f"the shape did not happen: {self.missing}"
        if self.said.dialled:
            return f"{self.said.dialled} connections reached the outside"
        if self.is_equal:
            return self.said.line
        first = self.said.first
        where = " / ".join(self.said.titles()) or self.said.verdict.get("stopped") or ""
        near = (first.get("nearest") or {}).get("differences") or []
        fields = ", ".join(item["field"] for item in near[:3])
        more = " ".join(
            part for part in (f"[{fields}]" if fields else "", first.get("moved", "")) if part
        )
        return f"{self.said.line}: {where} {more}".rstrip()


class Programs:
    """Compiled agents, made once: a shape's agent, and its twin."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[tuple[str, int], Path] = {}

    def find(self, runtime: str, twin: int) -> Path:
        """Return the program of a compiled runtime."""
        if (runtime, twin) not in self._made:
            self._made[runtime, twin] = self._make(runtime, twin)
        return self._made[runtime, twin]

    def _make(self, runtime: str, twin: int) -> Path:
        place = self._directory / f"{runtime}-{twin}"
        place.mkdir(parents=True)
        (source,) = (AGENTS / runtime).iterdir()
        text = edited(source.read_text(), twin)
        copy = place / source.name
        copy.write_text(text)
        program = place / "agent"
        if runtime == "go":
            go = shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin:/usr/bin")
            need("go", go is not None)
            env = {
                "CGO_ENABLED": "0",
                "GOCACHE": str(self._directory / "gocache"),
                "GOPROXY": "off",
                "HOME": str(self._directory),
                "PATH": "/usr/bin:/bin",
            }
            words = [str(go), "build", "-o", str(program), str(copy)]
            subprocess.run(words, env=env, cwd=place, check=True)
        else:
            words = [need_program("gcc"), "-O2", "-o", str(program), str(copy)]
            subprocess.run([*words, "-lssl", "-lcrypto", "-lpthread"], check=True)
        return program


def edited(text: str, twin: int) -> str:
    """Return an agent's source as it is, or edited into its twin."""
    if not twin:
        return text
    for plain in ("TWIN = 0", "TWIN=0", "const twin = 0", "#define TWIN 0"):
        if plain in text:
            return text.replace(plain, plain[:-1] + "1", 1)
    raise AssertionError("an agent has no line for its twin")


@dataclass(slots=True)
class Pair:
    """One recording of a shape and what is done with it; a context manager."""

    shape: Shape
    programs: Programs
    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="hark-pair-")))
    size: int = 8_000_000

    def __post_init__(self) -> None:
        self.work.mkdir()
        (self.directory / "policy.toml").write_text(POLICY)
        self.service = Service(self.directory / "service")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.service.close()
        self.discard()
        shutil.rmtree(self.directory, ignore_errors=True)

    service: Service = field(init=False)

    @property
    def work(self) -> Path:
        """The agent's folder."""
        return self.directory / "work"

    @property
    def bundle(self) -> Path:
        """The recording."""
        return self.directory / "run.hark"

    def discard(self) -> None:
        """Throw away what the recorded agent wrote."""
        if not self.bundle.exists():
            return
        with Bundle.open(self.bundle) as bundle:
            run = ULID(bundle.header.run_id)
        if (RUNS / str(run)).exists():
            hark("discard", str(run))

    def place(self, twin: int = 0) -> list[str]:
        """Put the agent, or its twin, into the workspace; return its command."""
        runtime, name = self.shape.runtime, self.shape.name
        if runtime in ("client", "agent"):
            return self._place_client(twin)
        if runtime not in _SUFFIX:
            shutil.copy(self.programs.find(runtime, twin), self.work / "agent")
            return ["./agent", name]
        for source in (AGENTS / runtime).glob(f"ask{_SUFFIX[runtime]}"):
            shutil.copy(source, self.work)
        script = f"{name}{_SUFFIX[runtime]}"
        (self.work / script).write_text(edited((AGENTS / runtime / script).read_text(), twin))
        if runtime == "python":
            return [str(PYTHON), script]
        return [need_program("node") if runtime == "node" else "/bin/sh", script]

    def place_script(self, text: str) -> list[str]:
        """Put a script of the shape's runtime into the workspace; return its command."""
        command = self.place()
        (self.work / self.script).write_text(text)
        return command

    @property
    def script(self) -> str:
        """The name of an interpreted agent's file."""
        return f"{self.shape.name}{_SUFFIX[self.shape.runtime]}"

    def _place_client(self, twin: int) -> list[str]:
        """Put somebody else's program into the workspace, or with another model or argument."""
        python = str(PYTHON) if self.shape.runtime == "client" else str(VENV / "bin" / "python")
        if self.shape.runtime == "agent":
            need("venv-agents", (VENV / ".done").exists())
        if self.shape.name == "mini":
            words = ["-y", "--exit-immediately", "-m", "openai/m", "-t", TASK]
            return [str(VENV / "bin" / "mini"), *words]
        script = f"{self.shape.name}_client.py"
        text = (CLIENTS / script).read_text()
        if twin:
            old, new = ('"b": 23', '"b": 24') if self.shape.name == "mcp" else ('"m"', '"n"')
            assert old in text
            text = text.replace(old, new, 1)
        (self.work / script).write_text(text)
        shutil.copy(CLIENTS / "mcp_server.py", self.work)
        return [python, script]

    def record(self) -> str:
        """Record the agent; return what is missing of its shape."""
        return self.record_command(self.place())

    def record_command(self, command: list[str]) -> str:
        """Record a command in the workspace as it is; return what is missing of the shape."""
        options = [
            *upstreams(self.service.address, API, NEWS, OTHER, MCP),
            f"--upstream-ca={self.service.ca_file}",
            f"--policy={self.directory / 'policy.toml'}",
        ]
        env = environment(
            OPENAI_API_KEY=f"sk-test-{os.urandom(12).hex()}", SIZE=str(self.size), **MINI
        )
        done = hark(
            "run",
            *options,
            "-o",
            self.bundle,
            "--",
            *command,
            cwd=self.work,
            env=env,
            seconds=DEADLINE_S,
        )
        if done.status:
            return f"status {done.status}: {done.stderr.strip()[-400:]}"
        return self.shape.happened(self.service, done.text)

    def replay(self, *options: str, before: tuple[str, ...] = (), **env: str) -> Said:
        """Replay the recording; ``before`` and ``env`` as ``harness.running.hark`` has them."""
        known = len(self.service.connections())
        try:
            done = hark(
                "replay",
                "--json",
                *options,
                self.bundle,
                cwd=self.work,
                env=environment(**env),
                before=before,
                seconds=DEADLINE_S,
            )
        except subprocess.TimeoutExpired as error:
            return Said(-1, {}, str(error), len(self.service.connections()) - known)
        dialled = len(self.service.connections()) - known
        verdict = json.loads(done.stdout) if done.stdout else {}
        return Said(done.status, verdict, done.stderr, dialled)

    def run(self) -> Result:
        """Record and replay."""
        missing = self.record()
        return Result(missing, None if missing else self.replay())

    def twin(self) -> Said:
        """Replay the edited agent against the same recording."""
        self.place(twin=1)
        return self.replay("--workspace=current")
