"""Input items that have been checked, in the form in which they are listed again; made by input.py alone."""

import re
from typing import Any, Literal

import msgspec

CALL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""What a call's function may be named, by a client or by the model; a declared one has less to choose from."""


class MessageItem(msgspec.Struct, tag="message", tag_field="type"):
    """A message of the caller's, or one of the assistant's that the caller replays."""

    role: Literal["user", "assistant", "system", "developer"]
    content: list[dict[str, Any]]
    status: str = "completed"
    id: str = ""
    phase: Literal["commentary", "final_answer"] | msgspec.UnsetType = msgspec.UNSET

    @property
    def parts(self) -> int:
        """How many content parts it has."""
        return len(self.content)

    @property
    def text(self) -> str:
        """All of its parts' text."""
        return "".join(part.get("text", part.get("refusal", "")) for part in self.content)


class FunctionCallItem(msgspec.Struct, tag="function_call", tag_field="type"):
    """A call that the model made earlier."""

    call_id: str
    name: str
    arguments: str
    status: str = "completed"
    id: str = ""

    @property
    def parts(self) -> int:
        """It has no content parts."""
        return 0


class FunctionCallOutputItem(msgspec.Struct, tag="function_call_output", tag_field="type"):
    """What the function returned."""

    call_id: str
    output: str | list[dict[str, Any]]
    status: str = "completed"
    id: str = ""

    @property
    def parts(self) -> int:
        """How many content parts it has."""
        return 0 if isinstance(self.output, str) else len(self.output)

    @property
    def text(self) -> str:
        """The output as one text."""
        return self.output if isinstance(self.output, str) else "".join(part["text"] for part in self.output)


class ReasoningItem(msgspec.Struct, tag="reasoning", tag_field="type"):
    """What the model thought earlier; with a summary alone it adds nothing to the prompt."""

    content: list[dict[str, Any]]
    summary: list[dict[str, Any]]
    status: str = "completed"
    id: str = ""

    @property
    def parts(self) -> int:
        """How many content parts it has."""
        return len(self.content) + len(self.summary)

    @property
    def text(self) -> str:
        """The raw reasoning."""
        return "\n".join(part["text"] for part in self.content)


InputItem = MessageItem | FunctionCallItem | FunctionCallOutputItem | ReasoningItem
