"""Approvals: calls that somebody has to approve before the service makes them, and the answers.

    a call ─▶ ApprovalRequest, noted beside it ─▶ Answer in a later request ─▶ the call is made, or it isn't

A request is known by the id of its item. A digest of the call goes with the id, so that an approval is used once
(store/history/approvals.py), and for the call that was shown. Notes are kept with turns: only ever add a member, with
a default.
"""

import msgspec

from service.api.outcome import ASKED, ApprovalRequest
from store.turn import Notes, StoredMessage

ANSWERED = "mcp_approval_answer"
"""The role of a note that a conversation has gone on from a request, whose id is its name."""

NOT_APPROVED = "The call was not approved."
"""The text that the model is told. Never change it: a worker of another release replays tokens sampled behind it."""


def answer_note(request_id: str) -> StoredMessage:
    """The note that a conversation has gone on from a request."""
    return StoredMessage(ANSWERED, b"", name=request_id)


def waiting(notes: Notes) -> list[ApprovalRequest]:
    """The requests that wait for an answer in the conversation that has these notes, oldest first."""
    gone_on = {note.name for note in notes.get(ANSWERED, ())}
    asked = [msgspec.json.decode(note.name, type=ApprovalRequest) for note in notes.get(ASKED, ()) if note.name]
    return [each for each in asked if each.id not in gone_on]
