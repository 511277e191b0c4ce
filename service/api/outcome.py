"""A call of a tool that the service runs, and its outcome, for the response and for the model.

The event log of a background response keeps outcomes (responses/output/journal.py), so a worker that takes over
doesn't call again. A field keeps its place there: only ever add, with a default.
"""

from typing import Any, Literal

import msgspec

from service.api.approval import ApprovalRequest
from service.api.tools.callee import Hosted
from service.browser.page import Display

NOT_KNOWN = "Whether it had an effect is not known, and it was not repeated."


OUTPUTS = "code_interpreter_call.outputs"
"""A request includes this to be shown the output of code."""


class HostedCall(msgspec.Struct, frozen=True):
    """A call that the model has made, by the id of its item. Its `arguments` are as sampled, JSON or not.

    It is `begun` where another process may have carried it out already, and died before it could say so. `include`
    is the request's own (Rules), and `displays` are the browser's earlier ones, by cursor. An `approved` call is made
    if its approval can be used up.
    """

    id: str
    tool: Hosted
    arguments: str
    begun: bool = False
    include: frozenset[str] = frozenset()
    approved: ApprovalRequest | None = None
    displays: tuple[Display, ...] = ()


class ToldPicture(msgspec.Struct, frozen=True, array_like=True):
    """A picture of an outcome: its bytes, where its line begins in what is told, and how long that is."""

    data: bytes
    at: int
    line: int


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a call: the text that the model is `told`, and the `output` and `error` of its item. A tool that
    the model was trained with also has the members of its item that are known by then (`shown`), and the things that
    an answer may cite (`cites`, by their kind). The browser has its `display`, which an answer may cite too.
    A server's answer may have `pictures`.
    """

    status: Literal["completed", "failed", "incomplete"]
    told: str
    output: str | None = None
    error: dict[str, Any] | None = None
    shown: dict[str, Any] = {}
    cites: dict[str, Any] = {}
    display: Display | None = None
    pictures: tuple[ToldPicture, ...] = ()


def failed_outcome(why: str) -> Outcome:
    """The outcome of a call that came to nothing; the model is told so."""
    return Outcome("failed", f"Error: {why}", error=execution_error(why))


def broken_off(call: HostedCall) -> Outcome:
    """The outcome of a call that was stopped while it ran. The item of code has no error: its logs say so."""
    why = f"The call was broken off. {NOT_KNOWN}"
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
