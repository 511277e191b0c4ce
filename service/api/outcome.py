"""A call of a tool that the service runs, and its outcome, for the response and for the model.

The event log of a background response keeps outcomes (responses/output/journal.py), so a worker that takes over
doesn't call again. A field keeps its place there: only ever add, with a default and the journal's next version.
"""

from hashlib import blake2b
from typing import Any, Literal

import msgspec

from service.api import ids
from service.api.tools.callee import Hosted, HostedKind
from store.turn import Messages, Notes, StoredMessage

NOT_KNOWN = "Whether it had an effect is not known, and it was not repeated."


OUTPUTS = "code_interpreter_call.outputs"
"""A request includes this to be shown the output of code."""


ASKED = "mcp_approval"
"""The role of a note of an approval that a turn asked for."""

ANSWERED = "mcp_approval_answer"
"""The role of a note that a conversation has gone on from a request, whose id is its name."""


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

    @property
    def answer_note(self) -> StoredMessage:
        """The note that its conversation has gone on from it."""
        return StoredMessage(ANSWERED, b"", name=self.id)


def waiting(notes: Notes) -> list[ApprovalRequest]:
    """The requests that wait for an answer in the conversation that has these notes, oldest first."""
    gone_on = {note.name for note in notes.get(ANSWERED, ())}
    asked = [msgspec.json.decode(note.name, type=ApprovalRequest) for note in notes.get(ASKED, ()) if note.name]
    return [each for each in asked if each.id not in gone_on]


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


class HostedCall(msgspec.Struct, frozen=True):
    """A call that the model has made, by the id of its item. Its `arguments` are as sampled, JSON or not.

    It is `begun` where another process may have carried it out already, and died before it could say so. `include`
    is the request's own (Rules), and `displays` are what tools have displayed before, which only they read. An
    `approved` call is made if its approval can be used up.
    """

    id: str
    tool: Hosted
    arguments: str
    begun: bool = False
    include: frozenset[str] = frozenset()
    approved: ApprovalRequest | None = None
    displays: tuple[Any, ...] = ()


class ToldPicture(msgspec.Struct, frozen=True, array_like=True):
    """A picture of an outcome: its bytes, where its line begins in what is told, and how long that is."""

    data: bytes
    at: int
    line: int


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a call: the text that the model is `told`, and the `output` and `error` of its item. A tool that
    the model was trained with also has the members of its item that are known by then (`shown`), and the things that
    an answer may cite (`cites`, by their kind). One may have a `display`, which its tool alone reads: notes keep it.
    A server's answer may have `pictures`.
    """

    status: Literal["completed", "failed", "incomplete"]
    told: str
    output: str | None = None
    error: dict[str, Any] | None = None
    shown: dict[str, Any] = {}
    cites: dict[str, Any] = {}
    display: Any = None
    pictures: tuple[ToldPicture, ...] = ()


def display_role(kind: HostedKind) -> str:
    """The role of a note of a display of a tool of this kind."""
    return f"{kind}_display"


def display_note(kind: HostedKind, display: Any) -> StoredMessage:
    """The note of a tool's display, which is the next one of its conversation; as it was, or as a journal has it."""
    return StoredMessage(display_role(kind), b"", name=msgspec.json.encode(display).decode())


def failed_outcome(why: str) -> Outcome:
    """The outcome of a call that came to nothing; the model is told so."""
    return Outcome("failed", f"Error: {why}", error=execution_error(why))


def broken_off(call: HostedCall) -> Outcome:
    """The outcome of a call that was stopped while it ran. The item of code has no error: its logs say so."""
    why = f"The call was interrupted. {NOT_KNOWN}"
    logs = {"outputs": [{"type": "logs", "logs": f"{why}\n"}]} if OUTPUTS in call.include else {}
    shown = logs if call.tool.kind == "python" else {}
    return Outcome("incomplete", f"Error: {why}", error=execution_error(why), shown=shown)


def used_up() -> Outcome:
    """The outcome of a call whose approval was used up by another response."""
    return failed_outcome("Another response has used this approval. The call was not made.")


def lost_outcome() -> Outcome:
    """The outcome of a call whose process died, where it must not be made again."""
    return failed_outcome(f"The worker died during this call. {NOT_KNOWN}")


def execution_error(text: str) -> dict[str, Any]:
    """The error of an item, as OpenAI has it where a tool itself failed."""
    return {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": text}]}
