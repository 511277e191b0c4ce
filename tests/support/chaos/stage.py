"""An API that does no work itself, and workers that come and go, over one store."""

from pathlib import Path
from typing import Any

from openai.types.responses import Response

from tests.support.chaos.storm import QUICK
from tests.support.service.process import MODEL, ServiceProcess, WorkerProcess
from tests.support.waiting import wait_until

SECONDS = 60.0
"""How long anything may take that is waited for."""


class Stage:
    """Processes of one service. Close it."""

    def __init__(self, folder: Path, redis_url: str, **settings: object) -> None:
        """Starts the API; workers come later, with the same `settings`."""
        self._folder = folder
        self._settings: dict[str, Any] = QUICK | {"redis_url": redis_url} | settings
        self._workers: list[WorkerProcess] = []
        self.api = ServiceProcess(folder / "api", "--no-worker", **self._settings)

    def worker(self) -> WorkerProcess:
        """Another worker."""
        started = WorkerProcess(self._folder / f"worker-{len(self._workers)}", **self._settings)
        self._workers.append(started)
        return started

    def ask(self, words: str, tool: Any, **members: Any) -> str:
        """The id of a response in the background, which may use a tool."""
        create = self.api.client().responses.create
        return create(model=MODEL, input=words, tools=[tool], background=True, **members).id

    def get(self, id: str) -> Response:
        """The response as it stands."""
        return self.api.client().responses.retrieve(id)

    def done(self, id: str) -> Response:
        """The response at its end."""
        wait_until(lambda: self.get(id).status not in ("queued", "in_progress"), SECONDS, "it doesn't end")
        return self.get(id)

    def close(self) -> None:
        """End all processes."""
        for each in (self.api, *self._workers):
            each.kill()
