"""The one rule for a history that a client sends back: to Responses, Conversations, Chat Completions and Messages.

A client can't change its history, so nothing of it is refused. Each kind of item, block and part is read, shown to the
model as a text, or left out and named in `x-harmonium-items-left-out`; so is one of a kind that nobody knows, and one
that is broken. A refusal is for what is new in a request, which its sender can change, and for all of it where
HARMONIUM_UNSUPPORTED=refuse asks for that. Never leave out what has a readable neighbour together with it.
"""

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import Raw

from service.decoding import ABSENT

BYTES_A_STEP = 65_536
"""The bytes of JSON that are looked at before others get a turn."""

MAX_NAMES = 16
"""The most kinds that an answer names: they stand in a header."""

UNKNOWN = "unknown"
"""The name of what has no type, or one that no header may have."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


class ReplayFate(StrEnum):
    """The fate of a kind in a history."""

    READ = "read"
    TEXT = "shown as a text"
    LEFT_OUT = "left out, and named"


def name_of(kind: str) -> str:
    """The name of a kind, which may be any text that a client sent, as a header and a prompt may have it."""
    return kind if _NAME.fullmatch(kind) else UNKNOWN


class LeftOut:
    """The kinds of items, blocks and parts that a prompt goes without."""

    def __init__(self, kinds: Iterable[str] = ()) -> None:
        self._names: dict[str, None] = {}
        self.add_all(kinds)

    def add(self, kind: str) -> None:
        """Add a kind, which may be any text that a client sent."""
        if len(self._names) < MAX_NAMES:
            self._names[name_of(kind)] = None

    def add_all(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)


class _Sent(msgspec.Struct):
    type: Raw = ABSENT
    role: Raw = ABSENT
    call_id: Raw = ABSENT
    id: Raw = ABSENT


_sent, _text = msgspec.json.Decoder(_Sent), msgspec.json.Decoder(str)
_BRIEF_BYTES = 1024
"""The longest JSON of a type, a role or an id that is looked at."""


class Peek(NamedTuple):
    """The members of what may be anything by which it is told apart."""

    type: str
    """Empty for none."""
    role: str
    call: bytes
    """The JSON of the id of the call that it is, or answers; empty for none."""

    @property
    def kind(self) -> str:
        """The type of an item, a block or a part; `unknown` where it has none."""
        return self.type or ("message" if self.role else UNKNOWN)


def peek(raw: Raw) -> Peek:
    """The look at an item, a message, a block or a part. Nothing else of it is decoded."""
    try:
        sent = _sent.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Peek("", "", b"")
    call = bytes(memoryview(sent.id if sent.call_id == ABSENT else sent.call_id)[: _BRIEF_BYTES + 1])
    return Peek(_word(sent.type), _word(sent.role), call if call[:1] == b'"' and len(call) <= _BRIEF_BYTES else b"")


def _word(raw: Raw) -> str:
    """A text; empty for anything else."""
    try:
        return _text.decode(raw) if raw != ABSENT and len(memoryview(raw)) <= _BRIEF_BYTES else ""
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def kind_of(raw: Raw) -> str:
    """The kind of an item, a block or a part."""
    return peek(raw).kind


# --- what is new ---


_MODELS = frozenset({"reasoning", "program", "mcp_list_tools", "mcp_approval_request", "compaction"})
"""The types of items that a model has made, besides its calls, whose types end so."""

_RESULT = re.compile(rb'"type"\s*:\s*"tool_result"')


def is_the_models(kind: str, role: str = "") -> bool:
    """Whether a model has made an item of this type, or a message with this role."""
    return role == "assistant" or kind in _MODELS or kind.endswith(("_call", "_compaction"))


def answers(kind: str, role: str = "") -> bool:
    """Whether an item of this type, or a message with this role, is what a tool answered."""
    return kind.endswith("_output") or role in ("tool", "function")


class NewPart(NamedTuple):
    """The new part of a request."""

    first: int
    """The place of the first item, or message, behind the last one that a model has made, or that is a reference."""
    answered: bool
    """Whether a tool has answered behind that: what came with its answer was written by nobody."""


def new_in(sent: Sequence[Raw]) -> Generator[None, None, NewPart]:
    """The new part of these items, or messages. Yields now and then."""
    answered, read = False, 0
    for place in range(len(sent) - 1, -1, -1):
        kind, role, _ = peek(sent[place])
        if is_the_models(kind, role) or (kind == "item_reference" and place < len(sent) - 1):
            return NewPart(place + 1, answered)
        if (size := len(memoryview(sent[place]))) > BYTES_A_STEP:
            yield
        answered = answered or answers(kind, role) or (role == "user" and _RESULT.search(sent[place]) is not None)
        read += size
        if read > BYTES_A_STEP:
            read = 0
            yield
    return NewPart(0, answered)


# --- what becomes of each kind ---

READ, TEXT, LEFT_OUT = ReplayFate

PARTS: Mapping[str, ReplayFate] = {
    **dict.fromkeys(("input_text", "output_text", "text", "refusal", "input_image", "input_file"), READ),
    **dict.fromkeys(("summary_text", "reasoning_text"), TEXT),
    **dict.fromkeys(("input_audio", "input_video", "computer_screenshot", "encrypted_content"), LEFT_OUT),
}
"""The content parts of items. A part with a text is shown as that, and any other one leaves a line."""

BLOCKS: Mapping[str, ReplayFate] = {
    **dict.fromkeys(("text", "image", "document", "thinking", "redacted_thinking", "tool_use", "tool_result"), READ),
    **dict.fromkeys(("server_tool_use", "mcp_tool_use", "web_search_tool_result", "web_fetch_tool_result"), TEXT),
    **dict.fromkeys(("code_execution_tool_result", "bash_code_execution_tool_result", "mcp_tool_result"), TEXT),
    **dict.fromkeys(("text_editor_code_execution_tool_result", "tool_search_tool_result"), TEXT),
    **dict.fromkeys(("advisor_tool_result", "search_result", "tool_reference", "browser_state", "compaction"), TEXT),
    **dict.fromkeys(("container_upload", "fallback", "mcp_tool_listing", "tool_addition", "tool_removal"), LEFT_OUT),
}
"""The blocks of Messages."""

CHAT_PARTS: Mapping[str, ReplayFate] = {
    **dict.fromkeys(("text", "refusal", "image_url", "file"), READ),
    **dict.fromkeys(("input_audio", "video_url"), LEFT_OUT),
}
"""The content parts of Chat Completions."""
