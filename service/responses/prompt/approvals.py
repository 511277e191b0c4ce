"""Approvals among the items of a request: the calls that are made, and the text for the model about the others.

Requests come from the conversation, or are sent back by a client that keeps its history itself. An approved call
is made before anything is sampled (`rules.Answers`); all requests behind the first of these are answered with it, in
the order of the calls. The model is told of a call that was refused or passed over. Pure.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from service.api.approval import NOT_APPROVED
from service.api.items import (
    CALL_NAME,
    InputItem,
    McpApprovalRequestItem,
    McpApprovalResponseItem,
    McpCallItem,
    duplicate,
)
from service.api.outcome import ApprovalRequest
from service.errors import InvalidRequest
from service.responses.output.rules import Rules

MAX_APPROVED = 64
"""The most calls that one request approves."""

_ABOUT_APPROVALS = (McpApprovalRequestItem, McpApprovalResponseItem)


class Pending(NamedTuple):
    """A request, where it stands in the input (None for one of the conversation), and the answer to it."""

    request: ApprovalRequest
    place: int | None
    said: McpApprovalResponseItem | None

    @property
    def approved(self) -> bool:
        """Whether its call is to be made."""
        return self.said is not None and self.said.approve

    @property
    def told(self) -> str:
        """The text for the model where it isn't approved."""
        reason = None if self.said is None else self.said.reason
        return f"{NOT_APPROVED} {reason}" if reason else NOT_APPROVED


class Approving:
    """The requests that wait, and the input's answers to them."""

    at_once: Sequence[Pending] = ()
    """Those of the conversation that nobody approved, of which the model is told first of all."""
    asked: Mapping[int, Pending] = MappingProxyType({})
    """Those of the input, by their places."""
    answered: Sequence[Pending] = ()
    """The first that was approved and all behind it, which the response begins with."""
    passed: Sequence[str] = ()
    """The ids of those of the conversation that go without an approval from here on."""

    def __init__(self, rules: Rules, waiting: Sequence[ApprovalRequest], items: Sequence[InputItem]) -> None:
        """`waiting` are those of the conversation. Raises InvalidRequest for answers that can't be."""
        self._rules = rules
        if not waiting and not [item for item in items if isinstance(item, _ABOUT_APPROVALS)]:
            return
        pending = _pending(waiting, items)
        first = next((at for at, each in enumerate(pending) if each.approved), len(pending))
        self.at_once = [each for each in pending[:first] if each.place is None]
        self.asked = {each.place: each for each in pending if each.place is not None}
        self.answered = pending[first:]
        self.passed = [each.id for each in waiting if not any(one.request is each and one.approved for one in pending)]
        if sum(each.approved for each in pending) > MAX_APPROVED:
            raise InvalidRequest(f"More than {MAX_APPROVED} calls are approved at once.", param="input")
        for each in self.answered:
            if each.approved:
                self._check_offer(each)

    def _check_offer(self, pending: Pending) -> None:
        """Raise InvalidRequest where the tool isn't offered, or by another server than the one that was shown."""
        request = pending.request
        callee = self._rules.hosted_callee(request.server, request.tool)
        if callee is None or callee.hosted is None:
            raise _not_offered(request)
        if pending.place is None and request.at != callee.hosted.at:
            raise _elsewhere(request)

    def recipient(self, request: ApprovalRequest) -> str | None:
        """Whom the call addresses in Harmony; None for a name that a recipient can't have."""
        callee = self._rules.hosted_callee(request.server, request.tool)
        name = f"{request.server}.{request.tool}" if callee is None else callee.recipient
        return name if CALL_NAME.fullmatch(name) else None

    def is_answered(self, pending: Pending) -> bool:
        """Whether the response begins with it."""
        return any(each.request.id == pending.request.id for each in self.answered)


def _pending(waiting: Sequence[ApprovalRequest], items: Sequence[InputItem]) -> list[Pending]:
    """All requests that wait, in their order."""
    requests: dict[str, tuple[ApprovalRequest, int | None]] = {each.id: (each, None) for each in waiting}
    said: dict[str, McpApprovalResponseItem] = {}
    made = {item.approval_request_id for item in items if isinstance(item, McpCallItem)}
    for place, item in enumerate(items):
        if isinstance(item, McpApprovalRequestItem) and item.id:
            if item.id in requests:
                raise duplicate(item.id)
            request = ApprovalRequest(item.id, item.server_label, item.name, item.arguments)
            requests[item.id] = (request, place)
        elif isinstance(item, McpApprovalResponseItem):
            id = item.approval_request_id
            if id in said:
                raise InvalidRequest(f"Two items answer the approval request '{id[:100]}'. Send one.", param="input")
            if id not in requests and id not in made:
                raise not_waiting(id)
            said[id] = item
    return [Pending(request, place, said.get(id)) for id, (request, place) in requests.items() if id not in made]


def not_waiting(id: str) -> InvalidRequest:
    """An answer to what nobody asked, or not any more."""
    return InvalidRequest(
        f"No approval request '{id[:100]}' waits for an answer here: it is unknown, too old, for another call or "
        "server, or the conversation went on without one. Continue from the response that made it, or send its item "
        "before the answer.",
        param="input",
    )


def used_already(id: str) -> InvalidRequest:
    """A second answer."""
    return InvalidRequest(
        f"The approval request '{id[:100]}' has been used: its call was made, and is not made twice.", param="input"
    )


def _not_offered(request: ApprovalRequest) -> InvalidRequest:
    return InvalidRequest(
        f"The approval request '{request.id[:100]}' is for the tool '{request.tool[:100]}' of the server "
        f"'{request.server[:100]}', which isn't offered here. Send the approval with a request for a response, whose "
        "'tools' have that server with the tool.",
        param="tools",
    )


def _elsewhere(request: ApprovalRequest) -> InvalidRequest:
    return InvalidRequest(
        f"The approval request '{request.id[:100]}' is for the server '{request.server[:100]}' at another address than "
        "it has here. Declare it as it was when the model asked; have the model ask again where its operator moved it.",
        param="tools",
    )
