"""The steers of one response: what its client says while it is being made, and what becomes of that.

    accepted ─┬─▶ applied: the input of the response that goes on from it, once that is created
              ├─▶ pending: it ended in calls, so the steers lead the input that has their outputs
              └─▶ failed: they are given back

Whatever was accepted is applied once or given back, as long as there is a connection. Their events have numbers in the
stream of the response that they are for, also behind its last one.
"""

import secrets
from collections.abc import Sequence
from itertools import count
from typing import Any, Literal

import msgspec

from service.api.request import CreateRequest
from service.api.response import CustomToolCall, FunctionCall, Response, ResponseStatus
from service.api.steer import MAX_STEER_BYTES, SentSteer
from service.responses.run import Run
from service.web.admission import SocketSlot
from service.web.socket.frames import in_lane

MAX_STEERS = 16
"""The most steers that wait for the end of one response."""

MAX_STEERS_BYTES = MAX_STEER_BYTES
"""The most bytes that they have together."""

Code = Literal[
    "response_not_found",
    "invalid_input",
    "steering_not_supported",
    "too_many_pending_steers",
    "response_already_completed",
    "response_not_active",
    "successor_creation_failed",
]


class NotSteered(Exception):
    """Why a steer is given back."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code: Code = code
        self.message = message


class Steer:
    """What was said once, and its room, which is given back once."""

    def __init__(self, sent: SentSteer, size: int, room: SocketSlot) -> None:
        """Takes room for the `size` of its frame. Raises ApiError where there is none."""
        self.sent = sent
        self.size = size
        self.messages: Sequence[bytes] = ()
        self.id: str | None = None
        """Its id, once it is accepted."""
        room.take(size)
        self._room: SocketSlot | None = room

    def let_go(self) -> None:
        """It was applied or given back."""
        if self._room is not None:
            self._room.give_back(self.size)
            self._room = None


class _Shown(msgspec.Struct, omit_defaults=True):
    previous_response_id: str
    id: str | msgspec.UnsetType = msgspec.UNSET
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Error(msgspec.Struct):
    code: Code
    message: str
    type: str = "invalid_request_error"


class _SteerEvent(msgspec.Struct, tag_field="type", kw_only=True):
    steer: _Shown
    sequence_number: int


class _Accepted(_SteerEvent, tag="response.steer.accepted"):
    pass


class _Pending(_SteerEvent, tag="response.steer.pending"):
    required_input: Sequence[dict[str, Any]]
    reason: str = "waiting_for_required_input"


class _Failed(_SteerEvent, tag="response.steer.failed"):
    error: _Error


class Steering:
    """The steers of one response, in the order in which they came."""

    def __init__(self, run: Run, lane: str | None, *, supported: bool) -> None:
        """`lane` is where the response is made; `supported` is whether it can be steered."""
        self.id = run.plan.id
        self.lane = lane
        self.steers: list[Steer] = []
        self._run: Run | None = run
        self._supported = supported
        self._ended: ResponseStatus | None = None
        self._number = run.machine.number

    @property
    def said(self) -> list[bytes]:
        """The messages of all of them, each as JSON."""
        return [message for steer in self.steers for message in steer.messages]

    def take(self, steer: Steer) -> bytes:
        """Accept a steer; the event that says so. Raises NotSteered."""
        self.check(steer)
        steer.id = f"steer_{secrets.token_hex(24)}"
        self.steers.append(steer)
        event = _Accepted(steer=_Shown(self.id, steer.id), sequence_number=self._number())
        return in_lane([msgspec.json.encode(event)], self.lane)[0]

    def check(self, steer: Steer) -> None:
        """Raise NotSteered where a steer can't be taken."""
        if self._ended is not None:
            raise ended(self.id, self._ended)
        if not self._supported:
            raise NotSteered(
                "steering_not_supported",
                "A response of a conversation, one that compacts and one that generates nothing can't be steered.",
            )
        size = sum(each.size for each in self.steers) + steer.size
        if len(self.steers) >= MAX_STEERS or size > MAX_STEERS_BYTES:
            raise NotSteered(
                "too_many_pending_steers",
                f"At most {MAX_STEERS} steers of {MAX_STEERS_BYTES} bytes together wait for the end of a response. Say "
                "it in the next request.",
            )

    def hasten(self) -> None:
        """Have the response end at its next boundary."""
        if self._run is not None:
            self._run.steer()

    def close(self, response: Response) -> None:
        """The response has ended: it takes no more."""
        if self._run is not None:
            self._ended = response.status
            self._number = count(self._run.machine.next_number).__next__
            self._run = None

    def pending(self, required: Sequence[dict[str, Any]]) -> list[bytes]:
        """The events that say of all of them that `required` inputs come first."""
        events: list[_SteerEvent] = []
        for steer in self.steers:
            shown = _Shown(self.id, steer.id or "")
            events.append(_Pending(steer=shown, sequence_number=self._number(), required_input=required))
        return in_lane(list(map(msgspec.json.encode, events)), self.lane)

    def failed(self, steer: Steer, why: NotSteered) -> bytes:
        """The event that gives a steer back."""
        return failed(steer.sent, why, self.lane, self._number(), steer.id)

    def all_failed(self, why: NotSteered) -> list[bytes]:
        """The events that give all of them back."""
        return [self.failed(steer, why) for steer in self.steers]

    def let_go(self) -> None:
        """All of them were applied or given back."""
        for steer in self.steers:
            steer.let_go()
        self.steers = []


def failed(sent: SentSteer, why: NotSteered, lane: str | None, number: int = 0, id: str | None = None) -> bytes:
    """The event that gives back what was sent; what was not accepted has no id."""
    shown = _Shown(sent.response_id, msgspec.UNSET if id is None else id, sent.input)
    event = _Failed(steer=shown, sequence_number=number, error=_Error(why.code, why.message))
    return in_lane([msgspec.json.encode(event)], lane)[0]


def ended(id: str, status: ResponseStatus) -> NotSteered:
    """Why a response takes no more steers."""
    if status is ResponseStatus.COMPLETED:
        return NotSteered("response_already_completed", f"The response '{id}' is complete. Continue it by a request.")
    return NotSteered("response_not_active", f"The response '{id}' has ended ({status.value}).")


def required_input(response: Response) -> list[dict[str, Any]]:
    """What a client owes a response: an output for each of its calls."""
    required: list[dict[str, Any]] = []
    for item in response.output:
        if isinstance(item, FunctionCall) and item.status == "completed":
            required.append({"type": "function_call_output", "call_id": item.call_id, "name": item.name})
        elif isinstance(item, CustomToolCall) and item.status == "completed":
            required.append({"type": "custom_tool_call_output", "call_id": item.call_id})
    return required


def is_steerable(request: CreateRequest) -> bool:
    """Whether the response that is asked for can be steered, as far as the request says."""
    return request.generate and request.conversation is None and request.managing is None
