"""The steers of one response: its client's words while it is being made, and their outcome.

    accepted ─┬─▶ applied: the input of the response that goes on from it, once that is created
              ├─▶ pending: it ended in calls, so the steers lead the input that has their outputs
              └─▶ failed: they are given back

An accepted steer is applied once or given back, as long as there is a connection. Their events have numbers in the
stream of the response that they are for, also behind its last one.
"""

import secrets
from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec

from service.api.events import UNSTAMPED, Terminal
from service.api.response import ResponseStatus, SteerError, SteerShown
from service.api.steer import MAX_STEER_BYTES, NotSteered, SentSteer, no_steers_reason
from service.features.sockets.frames import in_lane
from service.metrics.counters import Metrics
from service.responses.drive import Driver
from service.web.admission.slots import Slot

MAX_STEERS = 16
"""The most steers that wait for the end of one response."""

MAX_STEERS_BYTES = MAX_STEER_BYTES
"""The most bytes that they have together."""


class SocketSteer:
    """One message of the client, and its room, which is given back once."""

    def __init__(self, sent: SentSteer, size: int, room: Slot) -> None:
        """Takes room for the `size` of its frame. Raises ApiError where there is none."""
        self.sent = sent
        self.size = size
        self.messages: Sequence[bytes] = ()
        self.id: str | None = None
        """Its id, once it is accepted."""
        room.take_body(size)
        self._room: Slot | None = room

    def let_go(self) -> None:
        """Note that it was applied or given back."""
        if self._room is not None:
            self._room.give_back(self.size)
            self._room = None


class Steering:
    """The steers of one response, in the order in which they came."""

    def __init__(self, driver: Driver, lane: str | None, metrics: Metrics, *, supported: bool) -> None:
        """`lane` is where the response is made; `supported` is whether it can be steered."""
        self.id = driver.plan.id
        self.lane = lane
        self.steers: list[SocketSteer] = []
        self._metrics = metrics
        self._driver: Driver | None = driver
        self._supported = supported
        self._ended: ResponseStatus | None = None
        self._number = driver.machine.number
        self.accepted = UNSTAMPED
        """The number of the last event that said that one is accepted."""

    @property
    def said(self) -> list[bytes]:
        """The messages of all of them, each as JSON."""
        return [message for steer in self.steers for message in steer.messages]

    def take(self, steer: SocketSteer) -> bytes:
        """Accept a steer; the event that says so. Raises NotSteered."""
        self.check(steer)
        steer.id = f"steer_{secrets.token_hex(24)}"
        self.steers.append(steer)
        self.accepted = self._number()
        return in_lane(_event("accepted", SteerShown(self.id, steer.id), self.accepted), self.lane)

    def check(self, steer: SocketSteer) -> None:
        """Raise NotSteered where a steer can't be taken."""
        if self._ended is not None:
            raise no_steers_reason(self.id, self._ended)
        if not self._supported:
            raise NotSteered(
                "steering_not_supported",
                "A response of a conversation, one that compacts and one that generates nothing can't be steered.",
            )
        size = sum(each.size for each in self.steers) + steer.size
        if len(self.steers) >= MAX_STEERS or size > MAX_STEERS_BYTES:
            raise NotSteered(
                "too_many_pending_steers",
                f"At most {MAX_STEERS} steers of {MAX_STEERS_BYTES} bytes together wait for the end of a response. "
                "Send the message with the next request.",
            )

    def hasten(self) -> None:
        """Have the response end at its next boundary."""
        if self._driver is not None:
            self._driver.steer()

    def close(self, last: Terminal) -> None:
        """The response has ended with this event: it takes no more."""
        self._ended = last.response.status
        self._number = count(last.sequence_number + 1).__next__
        self._driver = None

    def pending(self, required: Sequence[dict[str, Any]]) -> list[bytes]:
        """The events that say of all of them that `required` inputs come first."""
        count_steers(self._metrics, "pending", len(self.steers))
        more: dict[str, Any] = {"required_input": required, "reason": "waiting_for_required_input"}
        shown = (SteerShown(self.id, steer.id or "") for steer in self.steers)
        return [in_lane(_event("pending", each, self._number(), **more), self.lane) for each in shown]

    def failure(self, steer: SocketSteer, why: NotSteered) -> bytes:
        """The event that gives a steer back."""
        return in_lane(failure_of(steer.sent, why, self._number(), steer.id), self.lane)

    def give_back(self, why: NotSteered) -> list[bytes]:
        """The events that give all of them back."""
        events = [self.failure(steer, why) for steer in self.steers]
        self.end("failed")
        return events

    def end(self, outcome: str) -> None:
        """Note that all of them were applied, or that they failed."""
        count_steers(self._metrics, outcome, len(self.steers))
        for steer in self.steers:
            steer.let_go()
        self.steers = []


def count_steers(metrics: Metrics, outcome: str, steers: int = 1) -> None:
    """Count what became of steers."""
    metrics.steers.labels("stream", outcome).inc(steers)


def failure_of(sent: SentSteer, why: NotSteered, number: int = 0, id: str | None = None) -> bytes:
    """The event that gives back what was sent, in no lane; what was not accepted has no id."""
    shown = SteerShown(sent.response_id, msgspec.UNSET if id is None else id, sent.input)
    return _event("failed", shown, number, error=SteerError(why.code, why.message))


def _event(kind: str, steer: SteerShown, number: int, **more: Any) -> bytes:
    """The JSON of an event about a steer, with `more` members behind those that all have."""
    return msgspec.json.encode({"type": f"response.steer.{kind}", "steer": steer, "sequence_number": number, **more})
