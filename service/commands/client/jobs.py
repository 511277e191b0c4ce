"""Background responses that wait or run: listed once, or watched until somebody has seen enough."""

import time
from collections.abc import Callable, Iterator
from shutil import get_terminal_size

from service.commands.client import printing
from service.commands.client.errors import Refused
from service.commands.client.service import Json, Service

MOST_JOBS = 500
"""How many are looked at: as many as the service lists at once."""

WATCH_SECONDS = 1.0
"""How soon they are looked at again."""


def jobs_of(service: Service) -> tuple[list[Json], bool]:
    """What waits or runs, the newest first, and whether there is more. Raises ClientError."""
    page = service.call("GET", "/console/api/jobs", None, limit=MOST_JOBS)
    return page["data"], bool(page["has_more"])


def line_of(job: Json) -> str:
    """A response under way, on a line."""
    parts = [str(job["id"]), printing.when(job.get("created_at")), str(job.get("status")), str(job.get("model") or "")]
    parts.append(printing.excerpt(str(job.get("input") or "")))
    return "  ".join(part for part in parts if part)


def changes(service: Service, wait: Callable[[], None]) -> Iterator[Json]:
    """Each response under way as it is now, then whatever changes: those that come, begin, or have ended, each with its
    status by then, which is `deleted` where it is gone. Between two looks it waits. Raises ClientError.
    """
    known: dict[str, Json] = {}
    while True:
        found = {str(job["id"]): job for job in jobs_of(service)[0]}
        for id, job in reversed(found.items()):
            if id not in known or known[id].get("status") != job.get("status"):
                yield job
        for id, job in known.items():
            if id not in found:
                yield job | {"status": _status_of(service, id)}
        known = found
        wait()


def draw(service: Service, wait: Callable[[], None]) -> None:
    """What waits or runs, drawn again and again in the same place of a terminal. Raises ClientError."""
    drawn = 0
    while True:
        found, more = jobs_of(service)
        columns, rows = get_terminal_size()
        lines = [line_of(job) for job in found] or ["nothing waits or runs"]
        if more or len(lines) >= rows:
            lines = [*lines[: rows - 2], "… and more"]
        printing.redrawn([line[: columns - 1] for line in lines], drawn)
        drawn = len(lines)
        wait()


def pause() -> None:
    """Until it is time to look again."""
    time.sleep(WATCH_SECONDS)


def _status_of(service: Service, id: str) -> str:
    try:
        return str(service.call("GET", f"/v1/responses/{id}").get("status"))
    except Refused as error:
        if error.status != 404:
            raise
        return "deleted"
