"""The port of approvals: calls that somebody has to approve before the service makes them, and the answers.

Tools bring it (service/features/mcp/approvals.py).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from service.api.items import InputItem, McpApprovalResponseItem
from service.api.outcome import Answers, ApprovalRequest
from service.api.tools.callee import Callee


class MayCall(Enum):
    """Whether a run may make a call."""

    YES = "yes"  # nobody has made it
    BEGUN = "begun"  # an earlier run of this response may have made it
    NO = "no"  # it is another's to make, or nobody's


NOT_APPROVED = "The call was not approved."
"""The text that the model is told. Never change it: a worker of another release replays tokens sampled behind it."""


class Pending(NamedTuple):
    """A request, where it stands in the input (None for one of the conversation), and the answer to it, and where that
    stands.
    """

    request: ApprovalRequest
    place: int | None
    said: McpApprovalResponseItem | None
    answered_at: int | None = None

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
    """The requests that wait, and the input's answers to them; by default there are none."""

    at_once: Sequence[Pending] = ()
    """Those of the conversation that nobody approved, of which the model is told first of all."""
    asked: Mapping[int, Pending] = MappingProxyType({})
    """Those of the input, by their places."""
    answered: Sequence[Pending] = ()
    """The first that was approved and all behind it, which the response begins with."""
    passed: Sequence[ApprovalRequest] = ()
    """Those of the conversation that go without an approval from here on."""

    def is_answered(self, pending: Pending) -> bool:
        """Whether the response begins with it."""
        return any(each.request.id == pending.request.id for each in self.answered)


FindCallee = Callable[[str, str], Callee | None]
"""The callee that is a tool of a server, both by their names."""


class Approvals:
    """The calls that somebody has to approve; by default none can be."""

    def read(self, find: FindCallee, waiting: Sequence[ApprovalRequest], items: Sequence[InputItem]) -> Approving:
        """The answers of an input to the requests that wait in its conversation, and to its own. Raises InvalidRequest
        for answers that can't be.
        """
        return Approving()

    async def refuse_used(self, tenant: str, answers: Answers, by: str) -> None:
        """Raise InvalidRequest for an approval that can't be used any more: the first run has it, when its call begins.
        One that an earlier run of the response `by` has used up is no error: its run tells what became of that. Raises
        StoreUnavailable.
        """

    async def ask(self, tenant: str, id: str, requests: Sequence[ApprovalRequest]) -> None:
        """Note the approvals for which a response asks, so that each can be used once. Raises StoreUnavailable."""

    async def use_up(self, tenant: str, request: ApprovalRequest, *, by: str, run: str) -> MayCall:
        """Use an approval up for a `run` of the response `by`. Raises StoreUnavailable, and StoreUnconfirmed where that
        isn't safe in time.
        """
        return MayCall.NO


NO_APPROVALS = Approvals()
