"""Input items that have been checked, in the form in which they are listed again; made by read.py alone.

A search for tools that the server did is listed as it came and tells the model nothing; but the tools that it found
are loaded all the same.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.api.content import (
    IMAGE,
    USUAL_BOUNDS,
    ContentPart,
    Images,
    PictureBounds,
    ReadPicture,
    ReadPictures,
    images_in,
    text_of,
    text_part,
)
from service.api.replay import LeftOut
from service.api.request import Effort
from service.api.tools.callee import FILE_SEARCH, FUNCTIONS, MSEARCH
from service.api.tools.client import ClientKind, content_of
from service.decoding import ABSENT, Json
from service.errors import InvalidRequest, invalid_value
from service.pictures import REFERENCE
from store.turn import MOST_PICTURE_BYTES

CALL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""The legal names of a called function, from a client or the model; a declared one has less to choose from."""

MAX_CALL_ID_CHARS = 256

Status = Literal["in_progress", "completed", "incomplete"]
Execution = Literal["server", "client"]


def checked_name(name: str, where: str) -> str:
    """The name of a tool that is called. Raises InvalidRequest."""
    if not CALL_NAME.fullmatch(name):
        raise invalid_value(where, name, "A tool's name has 1 to 128 of the characters A-Z, a-z, 0-9, _, . and -.")
    return name


def checked_call_id(call_id: str, where: str) -> str:
    """The id of a call. Raises InvalidRequest."""
    if not 1 <= len(call_id) <= MAX_CALL_ID_CHARS:
        raise invalid_value(where, call_id, f"It has 1 to {MAX_CALL_ID_CHARS} characters.")
    return call_id


class InputItem(msgspec.Struct, tag_field="type", kw_only=True):
    """The base of all input items; `read.identify` gives them their `id`."""

    id: str = ""

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def parts(self) -> list[dict[str, Any]]:
        return []

    @property
    def images(self) -> list[str]:
        """The URLs of its images, or references to them; empty for one that has neither."""
        return images_in(self.parts)


class MessageItem(InputItem, tag="message"):
    """A message of the caller, or an earlier one of the assistant."""

    role: Literal["user", "assistant", "system", "developer"]
    content: list[dict[str, Any]]
    status: str = "completed"
    phase: Literal["commentary", "final_answer"] | UnsetType = UNSET

    @property
    def parts(self) -> list[dict[str, Any]]:
        return self.content

    @property
    def text(self) -> str:
        return text_of(self.content)


class AgentMessageItem(InputItem, tag="agent_message", kw_only=True):
    """The words of one agent of the client's to another."""

    author: str
    recipient: str
    content: list[dict[str, Any]]

    @property
    def parts(self) -> list[dict[str, Any]]:
        return self.content

    @property
    def text(self) -> str:
        """Its words in a prompt, which say whose they are."""
        said = "".join(part["text"] for part in self.content)
        return f"Message from {self.author or 'an agent'}:\n{said}"


class LeftOutItem(InputItem, tag="left_out"):
    """The place of an item of a history that can't be read. It is in no list, and adds nothing to a prompt."""

    sent: str = ""
    """Its type, as it was sent."""
    role: str = ""


class FunctionCallItem(InputItem, tag="function_call"):
    """A call that the model made earlier."""

    call_id: str
    name: str
    arguments: str
    status: str = "completed"
    namespace: str | UnsetType = UNSET


class CustomToolCallItem(InputItem, tag="custom_tool_call"):
    """A call of a custom tool that the model made earlier."""

    call_id: str
    name: str
    input: str
    status: str = "completed"
    namespace: str | UnsetType = UNSET


class FunctionCallOutputItem(InputItem, tag="function_call_output"):
    """The output of the function."""

    call_id: str
    output: str | list[dict[str, Any]]
    status: str = "completed"

    @property
    def parts(self) -> list[dict[str, Any]]:
        return [] if isinstance(self.output, str) else self.output

    @property
    def text(self) -> str:
        return self.output if isinstance(self.output, str) else text_of(self.output)


class CustomToolCallOutputItem(FunctionCallOutputItem, tag="custom_tool_call_output"):
    """The output of the custom tool."""


class ReasoningItem(InputItem, tag="reasoning"):
    """Earlier reasoning of the model; a summary alone adds nothing to the prompt."""

    content: list[dict[str, Any]]
    summary: list[dict[str, Any]]
    status: str = "completed"
    encrypted_content: str | UnsetType = UNSET

    @property
    def parts(self) -> list[dict[str, Any]]:
        return self.content + self.summary

    @property
    def text(self) -> str:
        return "\n".join(part["text"] for part in self.content)


# --- calls of the client's tools that have items of their own, and their outputs ---


class ActionCallItem(InputItem, kw_only=True):
    """A call of a tool of the client's; one that is incomplete was not carried out, and needs no output."""

    tool: ClassVar[ClientKind]
    member: ClassVar[str] = "action"
    call_id: str
    status: Status = "completed"

    @property
    def content(self) -> str:
        """The call as the model writes it."""
        return content_of(self.tool, getattr(self, self.member))


class ShellCallItem(ActionCallItem, tag="shell_call", kw_only=True):
    """Commands for the client's shell."""

    tool: ClassVar[ClientKind] = "shell"
    action: Json
    environment: Json | UnsetType = UNSET


class LocalShellCallItem(ActionCallItem, tag="local_shell_call", kw_only=True):
    """A command for the client's machine."""

    tool: ClassVar[ClientKind] = "local_shell"
    action: Json


class ApplyPatchCallItem(ActionCallItem, tag="apply_patch_call", kw_only=True):
    """A change of one of the client's files."""

    tool: ClassVar[ClientKind] = "apply_patch"
    member: ClassVar[str] = "operation"
    operation: Json


class ToolSearchCallItem(InputItem, tag="tool_search_call"):
    """A search for tools. Only one that the client does is a call that the model is shown."""

    tool: ClassVar[ClientKind] = "tool_search"
    call_id: str | None
    arguments: Raw
    execution: Execution
    status: Status = "completed"

    @property
    def content(self) -> str:
        return bytes(self.arguments).decode()

    @property
    def is_shown(self) -> bool:
        """Whether it adds anything to a prompt."""
        return self.execution == "client"


class ActionOutputItem(InputItem):
    """The output of such a call."""

    call_id: str

    @property
    def text(self) -> str:
        raise NotImplementedError


class ShellCallOutputItem(ActionOutputItem, tag="shell_call_output", kw_only=True):
    """The output of commands, and how they ended."""

    output: list[Json]
    status: str = "completed"
    max_output_length: int | UnsetType | None = UNSET

    @property
    def text(self) -> str:
        return "\n".join(map(_command_output, self.output))


class LocalShellCallOutputItem(ActionOutputItem, tag="local_shell_call_output", kw_only=True):
    """The output of a command."""

    output: str
    status: str = "completed"

    @property
    def text(self) -> str:
        return self.output


class ApplyPatchCallOutputItem(ActionOutputItem, tag="apply_patch_call_output", kw_only=True):
    """Whether a file was changed."""

    status: Literal["completed", "failed"]
    output: str | UnsetType | None = UNSET

    @property
    def text(self) -> str:
        said = self.output or ""
        if self.status == "failed":
            return f"The patch failed: {said}" if said else "The patch failed."
        return said or "Done."


class ToolSearchOutputItem(InputItem, tag="tool_search_output"):
    """Tools that a search found: the model may call them from here on."""

    call_id: str | None
    tools: list[Any]
    execution: Execution
    status: str = "completed"

    @property
    def text(self) -> str:
        """The text that the model is told: the names of the tools. Their declarations stand with those of all tools."""
        names = [name for tool in self.tools for name in _names(tool, FUNCTIONS)]
        return f"Loaded: {', '.join(names)}." if names else "No tools were found."


def _command_output(output: Json) -> str:
    """The output of a command, and its end: a failure, a timeout, or an exit without any output."""
    said = [text.removesuffix("\n") for text in (output["stdout"], output["stderr"]) if text]
    outcome: Json = output.get("outcome") or {"type": "exit", "exit_code": 0}
    if outcome["type"] == "timeout":
        said.append("[It was stopped: it took too long.]")
    elif outcome["exit_code"] or not said:
        said.append(f"[Exit code {outcome['exit_code']}.]")
    return "\n".join(said)


class _Named(msgspec.Struct):
    type: str = ""
    name: str = ""
    server_label: Any = None
    tools: list[Raw] | None = None


def _names(tool: object, namespace: str) -> Iterator[str]:
    """The names by which the model may call a tool, as it is listed."""
    named = msgspec.json.decode(tool if isinstance(tool, Raw) else msgspec.json.encode(tool), type=_Named)
    if named.type == "namespace":
        for inside in named.tools or ():
            yield from _names(inside, named.name)
    elif named.type in ("function", "custom"):
        yield f"{namespace}.{named.name}"
    else:
        yield named.server_label if isinstance(named.server_label, str) and named.server_label else named.type


# --- what changes the request, and what ran elsewhere ---


class CompactionItem(InputItem, tag="compaction"):
    """A compacted conversation, which replaces everything before it in the prompt."""

    encrypted_content: str


class CompactionSummaryItem(CompactionItem, tag="compaction_summary", kw_only=True):
    """A compaction under its first name. One that can't be opened is left out, as its client can't have another."""

    encrypted_content: str = ""


class ContextCompactionItem(CompactionSummaryItem, tag="context_compaction", kw_only=True):
    """A compaction, as Codex stores it."""


class CompactionTriggerItem(InputItem, tag="compaction_trigger"):
    """A request to compact everything before it."""


class AdditionalToolsItem(InputItem, tag="additional_tools"):
    """Tools besides the request's, as they are echoed."""

    tools: list[Any]
    role: Literal["developer"] = "developer"


class ConfigurationUpdateItem(InputItem, tag="configuration_update"):
    """Another effort, or another format of the answer, for this request."""

    reasoning: dict[str, Any] | None = None
    text: dict[str, Raw] | None = None


CONFIGURATION = "configuration"
"""The role of a note of such an item."""


class Configuration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Settings in effect; None and ABSENT where nothing was set. In a conversation an update stays in effect until
    another replaces that setting, so it is noted beside the messages of its turn: a reader of a chain finds it there
    without reading any items.
    """

    effort: Effort | None = None
    format: Raw = ABSENT

    def then(self, later: "Configuration") -> "Configuration":
        """The settings in effect behind a later configuration."""
        return Configuration(later.effort or self.effort, self.format if later.format == ABSENT else later.format)


def configuration_note(item: ConfigurationUpdateItem) -> str:
    """The text of an item's note: the settings that it makes."""
    effort = None if item.reasoning is None else item.reasoning["effort"]
    form = ABSENT if item.text is None else item.text["format"]
    return msgspec.json.encode(Configuration(effort, form)).decode()


class ItemReference(InputItem, tag="item_reference"):
    """An item that is stored; it is put in this one's place before the prompt is built."""

    reference: str = ""
    """The id of the stored item."""
    replayed: bool = False
    """Whether it is of a history: it is left out where nothing is stored under that id."""


class CodeInterpreterCallItem(InputItem, tag="code_interpreter_call"):
    """A call of Python by the model, here or in another service."""

    code: str | None = None
    container_id: str = ""
    outputs: list[dict[str, Any]] | None = None
    status: str = "completed"


class McpCallItem(InputItem, tag="mcp_call"):
    """A call of an MCP server's tool, here or in another service."""

    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: Raw | UnsetType = UNSET
    status: str = "completed"
    approval_request_id: str | None = None


class McpApprovalRequestItem(InputItem, tag="mcp_approval_request"):
    """A call that waits, or waited, for an approval. Its `id` is the one that was sent, until it gets one here."""

    server_label: str
    name: str
    arguments: str


class McpApprovalResponseItem(InputItem, tag="mcp_approval_response"):
    """An answer to the request for approval of such a call."""

    approval_request_id: str
    approve: bool
    reason: str | None = None


class Foreign(NamedTuple):
    """A kind of item of a tool that ran elsewhere: its listed members, the tool's name in a prompt, and the members of
    the model's call (`asked`) and of the tool's answer (`told`).
    """

    members: tuple[str, ...]
    name: str = ""
    asked: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


SEARCH_OF_FILES = f"{FILE_SEARCH}.{MSEARCH}"

FOREIGN: dict[str, Foreign] = {
    "file_search_call": Foreign(("queries", "results", "status"), SEARCH_OF_FILES, ("queries",), ("results",)),
    "program": Foreign(("call_id", "code", "fingerprint"), "program", ("code",)),
    "program_output": Foreign(("call_id", "result", "status"), "program", told=("result",)),
    "web_search_call": Foreign(("action", "status")),
    "image_generation_call": Foreign(("result", "revised_prompt", "status")),
    "computer_call": Foreign(("call_id", "action", "actions", "pending_safety_checks", "status")),
    "computer_call_output": Foreign(("call_id", "output", "acknowledged_safety_checks", "status")),
    "mcp_list_tools": Foreign(("server_label", "tools", "error")),
    "ghost_snapshot": Foreign(("ghost_commit",)),
}
"""One rule for all of them: the `asked` members become a call and the `told` ones the tool's answer, each as its text
or its JSON. A kind that has both is left out while it has no answer. A kind that has neither adds nothing to a prompt:
images, lists of tools.
"""


class ForeignItem(InputItem):
    """An item of a tool that ran elsewhere, as clients replay it; its members are JSON, listed as it was sent."""

    @property
    def foreign(self) -> Foreign:
        return FOREIGN[self.kind]

    @property
    def lists(self) -> bytes | None:
        """The label, as JSON, of the server whose tools it lists; None for any other kind."""
        given = self._member("server_label") if self.kind == "mcp_list_tools" else None
        return None if given is None else bytes(memoryview(given))

    @property
    def asked(self) -> str | None:
        """The arguments of the model's call, as JSON; None where there is nothing to show."""
        given = self._asked
        return msgspec.json.encode(given).decode() if given else None

    @property
    def told(self) -> str | None:
        """The answer that the model was told, as text or else as JSON; None where there was none."""
        raw = self._told
        if raw is None:
            return None
        sent = bytes(raw)
        return str(msgspec.json.decode(sent)) if sent[:1] == b'"' else sent.decode()

    @property
    def is_shown(self) -> bool:
        """Whether it adds anything to a prompt."""
        return bool(self._asked) or self._told is not None

    @property
    def _asked(self) -> dict[str, Raw]:
        if self.foreign.told and self._told is None:
            return {}
        return {name: raw for name in self.foreign.asked if (raw := self._member(name)) is not None}

    @property
    def _told(self) -> Raw | None:
        return next((raw for name in self.foreign.told if (raw := self._member(name)) is not None), None)

    def _member(self, name: str) -> Raw | None:
        raw: Raw | UnsetType = getattr(self, name)
        return None if isinstance(raw, UnsetType) or bytes(memoryview(raw)[:5]) in _NOTHING else raw


_NOTHING = (b"null", b"[]", b"{}", b'""')


def foreign_kind(kind: str) -> "type[ForeignItem]":
    """The struct of a kind. Each member is JSON that isn't decoded, or it is absent."""
    fields = [(member, Raw | UnsetType, UNSET) for member in FOREIGN[kind].members]
    made: Any = msgspec.defstruct(f"Foreign_{kind}", fields, bases=(ForeignItem,), tag=kind, kw_only=True)
    return made


BYTES_A_STEP = 65_536
"""The bytes of JSON that are read before others get a turn: at most some 3 ms."""

MAX_REFERENCED_BYTES = 8_388_608
"""The most bytes of stored items that one request may refer to: the default limit of a body."""


class PictureElsewhere(NamedTuple):
    """The part of an image whose picture is at a URL of http, the place of that, and whether the part is of a history:
    then it leaves its line where the picture can't be had.
    """

    part: dict[str, Any]
    where: str
    replayed: bool


class Gathered(msgspec.Struct):
    """The effects of items on the request as a whole: lists of tools that were `added`, with their places, and the
    count of their tools and bytes; lists that searches `loaded`, the oldest first; another effort, or another format
    of the answer with its place (the last one holds); the ids of stored items; the `pictures`; and the wish for a
    compaction. It also holds limits of the request: of pictures, which are refused for None, and the bytes of tools;
    and the place of its first item among those that the client sent.
    """

    bounds: PictureBounds | None = USUAL_BOUNDS
    begins_at: int = 0
    tools_bytes: int = 1_048_576
    pictures: ReadPictures = msgspec.field(default_factory=ReadPictures)
    images: Images = msgspec.field(default_factory=Images)
    """The parts of images whose pictures are still to be read."""
    elsewhere: list[PictureElsewhere] = msgspec.field(default_factory=list[PictureElsewhere])
    parts: list[ContentPart] | None = None
    """The parts of the item that is read, where they were read before it."""
    shown: int = 0
    """How many pictures were read, each as often as it is shown."""
    added: list[tuple[str, Raw]] = msgspec.field(default_factory=list[tuple[str, Raw]])
    loaded: list[tuple[str, Raw]] = msgspec.field(default_factory=list[tuple[str, Raw]])
    added_tools: int = 0
    added_bytes: int = 0
    effort: Effort | None = None
    format: tuple[Raw, str] | None = None
    references: dict[str, None] = msgspec.field(default_factory=dict[str, None])
    trigger: str | None = None
    """The place of the wish for a compaction."""
    left_out: LeftOut = msgspec.field(default_factory=LeftOut)
    replays: bool = False
    """Whether the item that is read is of a history: it is left out where it can't be read."""
    leaving_out: LeftOut | None = None
    """The same of its parts, by their kinds; None where such a part is refused."""
    lost: set[bytes] = msgspec.field(default_factory=set[bytes])
    """The ids, as JSON, of calls that are left out: their outputs are as well."""
    replayed: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    """The parts of a history with pictures, the oldest first: they make room for newer ones."""
    replayed_at: set[str] = msgspec.field(default_factory=set[str])
    """The places of tools and formats of a history, which are left out where they can't be read."""
    uses: Counter[str] = msgspec.field(default_factory=Counter[str])
    """How many parts show each of the pictures."""
    ids: set[str] = msgspec.field(default_factory=set[str])
    """The ids with which its items came, but for those that clients make up."""

    def note_id(self, id: str) -> None:
        """Note the id with which an item came. Raises InvalidRequest where another item of the input has it."""
        if id in self.ids:
            raise duplicate(id)
        self.ids.add(id)

    def where(self, place: int) -> str:
        """The parameter that an item is, as its client knows it."""
        return f"input[{self.begins_at + place}]"

    def take(self, found: ReadPicture, part: dict[str, Any], where: str, bounds: PictureBounds) -> None:
        """Take the picture of a part, which is shown once more. Where there are too many, the oldest of a history go.
        Raises InvalidRequest.
        """
        digest = found.picture.digest.hex()
        self.pictures[digest] = found
        self.shown += 1
        self.uses[digest] += 1
        if self.leaving_out is not None:
            self.replayed.append(part)
        while self._has_too_many(bounds):
            if not self.replayed:
                raise too_many_pictures(where, bounds)
            self.make_room()

    def make_room(self) -> None:
        """Leave out the oldest picture of a history; there is one."""
        oldest = self.replayed.pop(0)
        digest = oldest["image_url"].removeprefix(REFERENCE)
        self.shown -= 1
        self.uses[digest] -= 1
        if not self.uses[digest]:
            del self.pictures[digest]
        self.leave_out(oldest)

    def _has_too_many(self, bounds: PictureBounds) -> bool:
        size = sum(len(each.picture.data) for each in self.pictures.values())
        return self.shown > bounds.request or size > MOST_PICTURE_BYTES

    def leave_out(self, part: dict[str, Any]) -> None:
        """Put the line that stands for an image into the place of its part."""
        self.left_out.add(part["type"])
        part.clear()
        part |= text_part("input_text", f"{IMAGE}\n")


class DuplicateItem(InvalidRequest):
    """An item that the conversation has, or the input twice."""


def duplicate(id: str, *, code: str | None = None) -> DuplicateItem:
    """The refusal of such an item, in OpenAI's words."""
    return DuplicateItem(
        f"Duplicate item found with id {id[:100]}. Remove duplicate items from your input and try again.",
        code=code,
        param="input",
    )


def too_many_pictures(where: str, bounds: PictureBounds) -> InvalidRequest:
    """The refusal of one picture too many."""
    most = f"{bounds.request}, or {MOST_PICTURE_BYTES:,} bytes"
    told = f"Too many pictures in 'input': more than {most}. Send fewer at once."
    return InvalidRequest(told, code="too_many_images", param=where)
