"""Approvals: calls that somebody has to approve before the service makes them, and the answers.

    a call ─▶ ApprovalRequest, noted beside it ─▶ Answer in a later request ─▶ the call is made, or it isn't

A request is known by the id of its item. A digest of the call goes with the id, so that an approval is used once
(store/history/approvals.py), and for the call that was shown. Notes are kept with turns: only ever add a member, with
a default.
"""

from hashlib import blake2b

import msgspec

from service.api import ids
from service.api.tools.callee import Hosted
from store.turn import Messages, Notes, StoredMessage

ASKED = "mcp_approval"
"""The role of a note of an approval that a turn asked for."""

ANSWERED = "mcp_approval_answer"
"""The role of a note that a conversation has gone on from a request, whose id is its name."""

NOT_APPROVED = "The call was not approved."
"""The text that the model is told. Never change it: a worker of another release replays tokens sampled behind it."""


class ApprovalRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that somebody has to approve, by the id of its item. `channel` is the one on which the model made it, and
    `at` is the server's, as of Hosted: the label alone could name another one by the time of the answer.
    """

    id: str
    server: str
    tool: str
    arguments: str
    channel: str | None = None
    at: str = ""

    @property
    def digest(self) -> str:
        """The digest of the call, which reveals nothing of its text."""
        call = msgspec.json.encode([self.server, self.at, self.tool, self.arguments])
        return blake2b(call, digest_size=16).hexdigest()

    @property
    def place(self) -> ids.ItemIndex | None:
        """The response that asked for it, and the place in it; None for an id that isn't of this service."""
        place = ids.place_of(self.id)
        return None if place is None or place.own_input else place

    @property
    def note(self) -> StoredMessage:
        """The note that the asking turn keeps of it."""
        place = self.place
        noted = msgspec.json.encode(self).decode()
        return StoredMessage(ASKED, b"", name=noted, item=None if place is None else place.number)


class ApprovalOutcome(msgspec.Struct, frozen=True):
    """The outcome of a request: the tool that is called, or the message that the model is told instead."""

    request: ApprovalRequest
    recipient: str
    tool: Hosted | None = None
    told: StoredMessage | None = None


class Answers(msgspec.Struct, frozen=True):
    """The calls that a response makes before anything is sampled, in their order. `behind` has the caller's other
    messages, which stand behind the outcomes.
    """

    given: tuple[ApprovalOutcome, ...]
    behind: Messages = ()


def answer_note(request_id: str) -> StoredMessage:
    """The note that a conversation has gone on from a request."""
    return StoredMessage(ANSWERED, b"", name=request_id)


def waiting(notes: Notes) -> list[ApprovalRequest]:
    """The requests that wait for an answer in the conversation that has these notes, oldest first."""
    gone_on = {note.name for note in notes.get(ANSWERED, ())}
    asked = [msgspec.json.decode(note.name, type=ApprovalRequest) for note in notes.get(ASKED, ()) if note.name]
    return [each for each in asked if each.id not in gone_on]
