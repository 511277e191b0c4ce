"""A lane of a WebSocket: responses that are made one after the other, each of which may continue the one before it.

Lanes run side by side. A lane remembers its last response, so that the next needs nothing from the store. It forgets
that one where a response that continues it fails (Open Responses demands it), as client and service may no longer
agree on what was said.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

from service.features.sockets.memory import ResponseMemory
from service.features.sockets.steering import Steering
from service.responses.drive import Driver
from service.responses.parent import Remembered
from service.responses.plan import messages_of, pictures_of
from service.responses.prepare import Prepared
from store.turn import CONTINUABLE, Status

MAX_ENDED = 16
"""The most of its last responses of which a lane knows the end, and the number of the next event."""

TURN_BYTES = 512
"""About what a remembered turn takes beside its tokens."""


@dataclass(frozen=True)
class Succession:
    """The legacy of a steered response to the next one: its `steering`, its instructions, and those items of its
    input, each as JSON, that say how a request is served.
    """

    steering: Steering
    instructions: str | None
    standing: tuple[bytes, ...]


@dataclass(frozen=True)
class LaneRequest:
    """A response that is to be made: as a frame asks for it, or `after` a steered one for which the frame asked."""

    frame: bytes
    after: Succession | None = None


class Lane:
    """One lane: what waits in it, and the run that is under way."""

    def __init__(self, tenant: str, name: str | None, memory: ResponseMemory) -> None:
        """`name` is None for the lane of frames that name none."""
        self.name = name
        self.waiting: deque[LaneRequest] = deque()
        self.driver: Driver | None = None
        self.steering: Steering | None = None
        """The steers of that run."""
        self.pending: Steering | None = None
        """The steers of the newest response, where they wait for the outputs of its calls."""
        self._ended: deque[Steering] = deque(maxlen=MAX_ENDED)
        self.working: asyncio.Task[None] | None = None
        """The task that makes its responses, while anything waits or is under way."""
        self._tenant = tenant
        self._memory = memory
        self._newest: str | None = None

    def steering_of(self, id: str) -> Steering | None:
        """The steers of a response that is under way, or was one of its last."""
        known = (self.steering, *self._ended)
        return next((each for each in known if each is not None and each.id == id), None)

    def recall(self, id: str) -> Remembered | None:
        """The turn that is remembered under an id."""
        return self._memory.get(self._tenant, self) if id == self._newest else None

    def remember(self, planned: Prepared, driver: Driver) -> None:
        """Remember the response of a run that has ended, if it can be continued; else forget what it continued."""
        response = driver.response
        if self.steering is not None:
            self._ended.append(self.steering)
        if response is None or Status(response.status) not in CONTINUABLE:
            self.forget(planned.parent.id)
            return
        plan = driver.plan
        chain = planned.parent.chain.then(plan.id, messages_of(plan, driver.machine))
        pictures = () if plan.stored else pictures_of(plan, driver.machine)
        size = sum(TURN_BYTES + sum(message.size for message in turn) for turn in chain.turns)
        size += sum(len(each.data) for each in pictures)
        self._newest = plan.id
        self._memory.put(self._tenant, self, Remembered(chain, plan.stored, size, pictures))

    def take_pending(self, id: str | None) -> Steering | None:
        """The steers that wait for the outputs of the calls of `id`, if any do; they are the caller's then."""
        if self.pending is None or self.pending.id != id:
            return None
        steering, self.pending = self.pending, None
        return steering

    def forget(self, id: str | None) -> None:
        """A response that continues `id` failed."""
        if id is not None and id == self._newest:
            self.close()

    def close(self) -> None:
        """Remember nothing any more."""
        self._newest = None
        self._memory.drop(self._tenant, self)
