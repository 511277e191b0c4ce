"""Keys that open nothing, in the audit log: so few of them that whoever tries many pushes nothing else out of it."""

import asyncio
from collections.abc import Callable
from time import monotonic

from service.logs import Ration
from service.tenants.audit import NOBODY, Actor, AuditEvent, note
from store.registry.registry import STRANGERS, Registry

SECONDS = 60.0
"""In so long a process notes one wrong key, and how many there were besides since the last one that it noted."""


class FailedLogins:
    """What a process notes of wrong keys: from where one came, and never what it was."""

    def __init__(self, registry: Registry, now: Callable[[], float] = monotonic) -> None:
        """`now` gives seconds."""
        self._registry = registry
        self._ration = Ration(1, now, seconds=SECONDS)
        self._noting: set[asyncio.Task[None]] = set()

    def note(self, request_id: str, address: str) -> None:
        """Somebody presented a wrong key. Nobody waits for the entry."""
        others = self._ration.take()
        if others is None:
            return
        about = {"error_code": "invalid_api_key", "error_message": "Incorrect API key provided.", "others": others}
        happened = AuditEvent("login.failed", request_id, about=about)
        noting = asyncio.create_task(note(self._registry, STRANGERS, Actor(NOBODY, address=address), happened))
        self._noting.add(noting)
        noting.add_done_callback(self._noting.discard)
