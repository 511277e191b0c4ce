"""Arize's Phoenix, unchanged, in a process of its own, and what its own API says of the spans that it was sent.

`scripts/setup phoenix` installs it into .venv-phoenix. It keeps spans by project: one is sent to the project that
PROJECT in OTEL_RESOURCE_ATTRIBUTES names.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support import ROOT
from tests.support.clients.clients import NOWHERE
from tests.support.ports import free_port
from tests.support.waiting import wait_until

PROGRAM = ROOT / ".venv-phoenix" / "bin" / "phoenix"
PROJECT = "openinference.project.name"
START_SECONDS = 240.0
"""It imports half a gigabyte, which nobody has compiled the first time, and makes its database, before it answers."""

SPANS_SECONDS = 30.0
STOP_SECONDS = 20.0
MOST_SPANS = 1_000

SETTINGS = {
    "PHOENIX_HOST": "127.0.0.1",
    "PHOENIX_TELEMETRY_ENABLED": "false",
    "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
    "PHOENIX_ENABLE_MCP_SERVER": "false",
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "NO_PROXY": "127.0.0.1",
}


@dataclass(frozen=True)
class Shown:
    """A span as Phoenix has it. `kind` is what it takes it for: LLM, or UNKNOWN."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str | None
    facts: Mapping[str, Any]


class Phoenix:
    """One Phoenix. `url` is where its pages and its API are, `traces_url` where it takes spans."""

    def __init__(self, folder: Path) -> None:
        """Starts it. `folder` has all that it keeps, and its log."""
        assert PROGRAM.exists(), "run scripts/setup phoenix first, or these tests by scripts/test --clients"
        port, grpc = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.traces_url = f"{self.url}/v1/traces"
        self._http = httpx.Client(base_url=self.url, timeout=SPANS_SECONDS, trust_env=False)
        told = {"HOME": str(folder), "PHOENIX_WORKING_DIR": str(folder)}
        told |= {"PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(grpc)}
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "serve"],
                cwd=folder,
                env={"PATH": os.environ["PATH"], **SETTINGS, **told},
                stdout=log,
                stderr=log,
            )
        try:
            wait_until(lambda: self._answers(folder / "log"), START_SECONDS, "Phoenix doesn't answer")
        except BaseException:
            self.stop()
            raise

    def _answers(self, log: Path) -> bool:
        assert self._process.poll() is None, log.read_text()
        try:
            return self._http.get("/healthz").is_success
        except httpx.TransportError:
            return False

    def spans(self, project: str) -> Sequence[Shown]:
        """The spans of a project, by when they began. It has none as long as nothing was sent there."""
        found = self._got(f"/v1/projects/{project}/spans", limit=MOST_SPANS)
        return [
            Shown(
                name=each["name"],
                kind=each["span_kind"],
                trace=each["context"]["trace_id"],
                id=each["context"]["span_id"],
                parent=each["parent_id"],
                facts=each["attributes"],
            )
            for each in sorted(found, key=lambda each: each["start_time"])
        ]

    def sessions(self, project: str) -> Sequence[Mapping[str, Any]]:
        return self._got(f"/v1/projects/{project}/sessions")

    def wait_for(self, project: str, traces: int) -> Sequence[Shown]:
        """The spans of a project, once so many traces are there whole: what has a parent is sent before it."""
        return wait_until(
            lambda: self.spans(project),
            SPANS_SECONDS,
            f"not {traces} traces",
            wanted=lambda found: sum(span.parent is None for span in found) >= traces,
        )

    def _got(self, path: str, **asked: int) -> list[dict[str, Any]]:
        answered = self._http.get(path, params=asked)
        return [] if answered.status_code == httpx.codes.NOT_FOUND else answered.raise_for_status().json()["data"]

    def stop(self) -> None:
        self._http.close()
        self._process.kill()
        self._process.wait(STOP_SECONDS)


def outline(spans: Sequence[Shown]) -> list[str]:
    """The names of spans as a tree: each below its parent and indented, those side by side by when they began."""

    def below(parent: str | None, depth: int) -> list[str]:
        lines: list[str] = []
        for span in spans:
            if span.parent == parent:
                lines += ["  " * depth + span.name, *below(span.id, depth + 1)]
        return lines

    return below(None, 0)
