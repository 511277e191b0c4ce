"""A lane of a WebSocket: responses that are made one after the other, each of which may continue the one before it.

Lanes run side by side. What a lane made last it remembers, so that the next needs nothing from the store; where a
response that continues it fails, that is forgotten (Open Responses demands it), as client and service may no longer
agree on what was said.
"""

import asyncio
from collections import deque

from service.responses.conversations.memory import Memory, Remembered, remembered
from service.responses.prepare import Prepared
from service.responses.run import Run
from store.turn import CONTINUABLE, Status


class Lane:
    """One lane: the frames that wait in it, and the run that is under way."""

    def __init__(self, tenant: str, name: str | None, memory: Memory) -> None:
        """`name` is None for the lane of frames that name none."""
        self.name = name
        self.waiting: deque[bytes] = deque()
        self.run: Run | None = None
        self.working: asyncio.Task[None] | None = None
        self._tenant = tenant
        self._memory = memory
        self._newest: str | None = None

    @property
    def busy(self) -> bool:
        """Whether anything waits or is under way."""
        return self.working is not None

    def recall(self, id: str) -> Remembered | None:
        """What is remembered under an id."""
        return self._memory.get(self._tenant, self) if id == self._newest else None

    def remember(self, planned: Prepared, run: Run) -> None:
        """Remember the response of a run that has ended, if it can be continued; else forget what it continued."""
        response = run.response
        if response is None or Status(response.status) not in CONTINUABLE:
            self.forget(planned.parent.id)
            return
        plan, messages = run.plan, (*run.plan.messages, *run.machine.messages)
        self._newest = plan.id
        self._memory.put(self._tenant, self, remembered(planned.parent.chain, plan.id, messages, stored=plan.stored))

    def forget(self, id: str | None) -> None:
        """A response that continues `id` failed."""
        if id is not None and id == self._newest:
            self.close()

    def close(self) -> None:
        """Remember nothing any more."""
        self._newest = None
        self._memory.drop(self._tenant, self)
