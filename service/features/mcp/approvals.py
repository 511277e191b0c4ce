"""Approvals: calls that somebody has to approve before the service makes them, and the answers.

    a call ─▶ ApprovalRequest, noted beside it ─▶ answer in a later request ─▶ the call is made, or it isn't

Requests come from the conversation, or are sent back by a client that keeps its history itself. An approved call
is made before anything is sampled (`rules.Answers`); all requests behind the first of these are answered with it, in
the order of the calls. The model is told of a call that was refused or passed over. A request is known by the id of its
item. A digest of the call goes with the id, so that an approval is used once (store/history/approvals.py), and for the
call that was shown.
"""

from collections.abc import Sequence

from service.api.approving import Approvals, Approving, FindCallee, MayCall, Pending
from service.api.items import InputItem, McpApprovalRequestItem, McpApprovalResponseItem, McpCallItem, duplicate
from service.api.outcome import Answers, ApprovalRequest
from service.errors import InvalidRequest
from store.history.approvals import StoredApprovals, Use

MAX_APPROVED = 64
"""The most calls that one request approves."""

_MAY_CALL = {Use.NEW: MayCall.YES, Use.AGAIN: MayCall.YES, Use.BEGUN: MayCall.BEGUN}
"""By how its approval was used up, whether a call may be made; by any other use it may not."""


class McpApprovals(Approvals):
    """The approvals of calls of servers' tools, which a store notes."""

    def __init__(self, stored: StoredApprovals) -> None:
        self._stored = stored

    def read(self, find: FindCallee, waiting: Sequence[ApprovalRequest], items: Sequence[InputItem]) -> Approving:
        """See the port."""
        return AnsweredApprovals(find, waiting, items)

    async def refuse_used(self, tenant: str, answers: Answers, by: str) -> None:
        """See the port."""
        for answer in answers.given:
            if answer.tool is None:
                continue
            request, place = answer.request, answer.request.place
            use = Use.UNKNOWN
            if place is not None:
                use = await self._stored.look(tenant, place.response_id, place.place, request.digest, by=by)
            if use is Use.GONE:
                raise _used_already(request.id)
            if use is Use.UNKNOWN:
                raise _not_waiting(request.id)

    async def ask(self, tenant: str, id: str, requests: Sequence[ApprovalRequest]) -> None:
        """See the port."""
        asked = {each.place.place: each.digest for each in requests if each.place is not None}
        await self._stored.ask(tenant, id, asked)

    async def use_up(self, tenant: str, request: ApprovalRequest, *, by: str, run: str) -> MayCall:
        """See the port."""
        place = request.place
        if place is None:
            return MayCall.NO
        use = await self._stored.use_up(tenant, place.response_id, place.place, request.digest, by=by, run=run)
        return _MAY_CALL.get(use, MayCall.NO)


class AnsweredApprovals(Approving):
    """The requests that wait, and the input's answers to them."""

    def __init__(self, find: FindCallee, waiting: Sequence[ApprovalRequest], items: Sequence[InputItem]) -> None:
        """`waiting` are those of the conversation. Raises InvalidRequest for answers that can't be."""
        self._find = find
        pending = _pending(waiting, items)
        first = next((at for at, each in enumerate(pending) if each.approved), len(pending))
        self.at_once = [each for each in pending[:first] if each.place is None]
        self.asked = {each.place: each for each in pending if each.place is not None}
        self.answered = pending[first:]
        self.passed = [each for each in waiting if not any(one.request is each and one.approved for one in pending)]
        if sum(each.approved for each in pending) > MAX_APPROVED:
            raise InvalidRequest(f"At most {MAX_APPROVED} calls can be approved at once.", param="input")
        for each in self.answered:
            if each.approved:
                self._check_offer(each)

    def _check_offer(self, pending: Pending) -> None:
        """Raise InvalidRequest where the tool isn't offered, or by another server than the one that was shown."""
        request = pending.request
        callee = self._find(request.server, request.tool)
        if callee is None or callee.hosted is None:
            raise _not_offered(request)
        if pending.place is None and request.at != callee.hosted.at:
            raise _elsewhere(request)


def _pending(waiting: Sequence[ApprovalRequest], items: Sequence[InputItem]) -> list[Pending]:
    """All requests that wait, in their order."""
    requests: dict[str, tuple[ApprovalRequest, int | None]] = {each.id: (each, None) for each in waiting}
    said: dict[str, tuple[McpApprovalResponseItem, int]] = {}
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
                raise _not_waiting(id)
            said[id] = item, place
    return [
        Pending(request, place, *said.get(id, (None, None)))
        for id, (request, place) in requests.items()
        if id not in made
    ]


def _not_waiting(id: str) -> InvalidRequest:
    """An answer to what nobody asked, or not any more."""
    return InvalidRequest(
        f"No approval request '{id[:100]}' waits for an answer: it is unknown, too old, for another call or server, or "
        "the conversation continued without an answer. Continue from the response that made the request, or send its "
        "item before the answer.",
        param="input",
    )


def _used_already(id: str) -> InvalidRequest:
    """A second answer."""
    return InvalidRequest(
        f"The approval request '{id[:100]}' has been used: its call was made, and is not made twice.", param="input"
    )


def _not_offered(request: ApprovalRequest) -> InvalidRequest:
    return InvalidRequest(
        f"The approval request '{request.id[:100]}' is for the tool '{request.tool[:100]}' of the server "
        f"'{request.server[:100]}', which isn't offered here. Send the approval with a request for a response whose "
        "'tools' have that server with the tool.",
        param="tools",
    )


def _elsewhere(request: ApprovalRequest) -> InvalidRequest:
    return InvalidRequest(
        f"The approval request '{request.id[:100]}' is for the server '{request.server[:100]}' at another address. "
        "Declare the server as it was when the model asked. If the operator moved the server, have the model ask "
        "again.",
        param="tools",
    )
