"""Input items: from the JSON of `input` to checked items, in the form in which they are listed again.

Clients replay what they were given, so members that an item may carry are accepted and dropped where we have no use
for them. A member that the prompt would need and that isn't served is a 400 that names it. An item is decoded into a
struct, and a plain function checks that; most are listed as they were sent. The items' effects on the request as a
whole go into `Gathered`, and responses/prompt/drafts.py puts the items into the prompt.

The caller's ids are dropped, once no two items have the same one. Ours are derived from the response's (ids.py):
`identify` gives them once that is known.
"""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from service.api import ids
from service.api import items as listed
from service.api.content import (
    USUAL_BOUNDS,
    ContentPart,
    no_such_file,
    parts_in_steps,
    read_parts,
    read_picture,
    text_or_parts,
    text_part,
    without_billing,
)
from service.api.replay import NewPart, ReplayFate, answers, new_in, peek
from service.api.request import ReasoningParam, TextParam
from service.api.tools.hosted import HOSTED, echo_of_hosted
from service.api.tools.read import MAX_LOADED, check_bytes
from service.decoding import ABSENT, Json, ObjectKind, decode, decode_list
from service.errors import InvalidRequest, invalid_value, missing, not_allowed, not_served

LOOKED_AT_CHARS = 4096
"""The beginning of a content by which it is told whether it is sealed."""

MAX_ENV = 1024
"""The most environment variables of a command."""

ITEMS_A_STEP = 128
"""The number of items that are read before others get a turn."""

PARTS_AN_ITEM = 4
"""A request may have so many content parts for each item that it may have."""

MAX_ITEM_ID_CHARS = 256
MAX_CODE_OUTPUTS = 1024

MAX_REASON_CHARS = 4096
"""The most characters of the reason for an approval: the model is told the reason as it is."""

MAX_ADDED_TOOLS = 1024
"""The most tools that items may add; tools/read.py has a limit for these and those of the request together."""

MAX_COMMANDS = 1024
"""The most commands of a call, and the most outputs of one."""

MAX_ACTION_BYTES = 1_048_576
"""The most bytes of JSON in a call's action: some 20 ms at worst."""

OF_ONE_REQUEST = (listed.AdditionalToolsItem, listed.ConfigurationUpdateItem, listed.CompactionTriggerItem)
"""Items that say how one request is served, and nothing that another could refer to."""

SENT_WHOLE = (*OF_ONE_REQUEST, listed.ToolSearchOutputItem)
"""Items that nothing can refer to: their tools are read before anything is fetched."""

Path = Annotated[str, Meta(pattern=r"^[^\r\n]*\Z")]
"""A path, which stands on a line of a patch."""

_UNIQUE = re.compile(rb'"((?!call_)[a-z]+_[0-9a-f]{32,128})"')
"""An id as OpenAI and we make them, in JSON. No other says that two items are one: clients make ids up, at times one
for all items of an input, or give an item the id of its call.
"""

_NAME_ANOTHER = ("item_reference", "local_shell_call_output")
"""The types of items whose `id` is that of another one."""

_NOTHING_MORE = re.compile(rb"[ \t\r\n]*\]")


class Reader(NamedTuple):
    """The struct into which an item of one type is decoded, and the function that makes the listed item of that."""

    sent: type[msgspec.Struct]
    read: Callable[[Any, str, listed.Gathered], listed.InputItem]


Check = Callable[[Any, str], Any]
"""The listed form of a member, by its value as sent and its place. Raises InvalidRequest."""


def _as_sent(item: type[listed.InputItem], checks: Mapping[str, Check] | None = None, **kinds: Any) -> Reader:
    """The reader of an item that is listed as it is sent, after these checks in their order. A member that may be left
    out may also be null. Some `kinds` of members differ from the item's: Raw is read by a check, and None by nobody.
    """
    fields: list[Any] = []
    for field in msgspec.structs.fields(item):
        kind = kinds.get(field.name, None if field.name == "id" else field.type)
        if kind is None:
            continue
        if field.required and type(None) not in get_args(kind):
            fields.append((field.name, kind))
        elif kind is Raw:
            fields.append((field.name, kind, ABSENT))
        elif UnsetType in get_args(kind):
            fields.append((field.name, kind, UNSET))
        else:
            fields.append((field.name, kind | None, None))
    sent_type = msgspec.defstruct(f"Sent{item.__name__}", fields, kw_only=True)
    defaults = [(field.name, field.default) for field in msgspec.structs.fields(sent_type)]

    def read(sent: Any, where: str, gathered: listed.Gathered) -> listed.InputItem:
        given = {name: value for name, default in defaults if (value := getattr(sent, name)) != default}
        for name, check in (checks or {}).items():
            if name in given:
                given[name] = check(given[name], f"{where}.{name}")
        return item(**given)

    return Reader(sent_type, read)


# --- messages and reasoning ---


class _Message(msgspec.Struct):
    role: Literal["user", "assistant", "system", "developer"]
    content: Raw
    phase: str | None = None


class _Reasoning(msgspec.Struct):
    content: Raw = ABSENT
    summary: Raw = ABSENT
    encrypted_content: str | None = None


def _message(sent: _Message, where: str, gathered: listed.Gathered) -> listed.MessageItem:
    kind = "output_text" if sent.role == "assistant" else "input_text"
    content = _content(sent.content, kind, f"{where}.content", gathered)
    if isinstance(content, str):
        content = [text_part(kind, content)]
    if sent.role in ("system", "developer"):
        content = [part | {"text": without_billing(part["text"])} if "text" in part else part for part in content]
    phase = _PHASES.get(sent.phase or "")
    if phase is None and sent.phase is not None and not gathered.replays:
        raise invalid_value(f"{where}.phase", sent.phase, f"Give {' or '.join(_PHASES)}.")
    return listed.MessageItem(sent.role, content, phase=phase or UNSET)


_PHASES: dict[str, Literal["commentary", "final_answer"]] = {
    "commentary": "commentary",
    "final_answer": "final_answer",
}


def _reasoning(sent: _Reasoning, where: str, gathered: listed.Gathered) -> listed.ReasoningItem:
    content = read_parts(sent.content, f"{where}.content", gathered.leaving_out)
    summary = read_parts(sent.summary, f"{where}.summary", gathered.leaving_out)
    return listed.ReasoningItem(
        content=[{"type": "reasoning_text", "text": part.text or ""} for part in content],
        summary=[{"type": "summary_text", "text": part.text or ""} for part in summary],
        encrypted_content=UNSET if sent.encrypted_content is None else sent.encrypted_content,
    )


class _AgentMessage(msgspec.Struct):
    author: str
    recipient: str
    content: Raw


_SEALED_ELSEWHERE = re.compile(r"(?:gAAAA|hs_)[A-Za-z0-9_-]{60,}={0,2}")
"""The content of a part that another service has sealed; where nothing is sealed, the part has the words themselves."""


def _agent_message(sent: _AgentMessage, where: str, gathered: listed.Gathered) -> listed.AgentMessageItem:
    """The words of one agent to another, as Codex sends them."""
    texts: list[str] = []
    for part in read_parts(sent.content, f"{where}.content", gathered.leaving_out):
        sealed = part.encrypted_content or ""
        if _SEALED_ELSEWHERE.fullmatch(sealed[:LOOKED_AT_CHARS]):
            gathered.left_out.add("encrypted_content")
        else:
            texts += filter(None, (part.text, sealed))
    if not texts:
        raise missing(f"{where}.content", "None of its parts can be read.")
    return listed.AgentMessageItem(
        author=sent.author, recipient=sent.recipient, content=[text_part("input_text", text) for text in texts]
    )


# --- calls and their outputs ---


class _CallOutput(msgspec.Struct):
    call_id: str
    output: Raw


class _CodeOutput(msgspec.Struct):
    type: str
    logs: str | None = None
    url: str | None = None


class ShellAction(msgspec.Struct):
    """Lines of shell, and their bounds."""

    commands: Annotated[list[str], Meta(max_length=MAX_COMMANDS)]
    timeout_ms: int | None = None
    max_output_length: int | None = None


class ExecAction(msgspec.Struct):
    """A program and how it runs."""

    command: Annotated[list[str], Meta(max_length=MAX_COMMANDS)]
    type: Literal["exec"] = "exec"
    env: Annotated[dict[str, str], Meta(max_length=MAX_ENV)] | None = None
    timeout_ms: int | UnsetType | None = UNSET
    user: str | UnsetType | None = UNSET
    working_directory: str | UnsetType | None = UNSET


class CreateFile(msgspec.Struct, tag="create_file"):
    """A file to create."""

    path: Path
    diff: str


class UpdateFile(msgspec.Struct, tag="update_file"):
    """A changed file."""

    path: Path
    diff: str


class DeleteFile(msgspec.Struct, tag="delete_file"):
    """A file to delete."""

    path: Path


class Exited(msgspec.Struct, tag="exit"):
    """A command that ended by itself."""

    exit_code: int


class TimedOut(msgspec.Struct, tag="timeout"):
    """A command that was stopped."""


class _ShellOutput(msgspec.Struct):
    stdout: str = ""
    stderr: str = ""
    outcome: Exited | TimedOut | None = None


def _call_output(item: type[listed.FunctionCallOutputItem]) -> Reader:
    def read(sent: _CallOutput, where: str, gathered: listed.Gathered) -> listed.InputItem:
        call_id = listed.checked_call_id(sent.call_id, f"{where}.call_id")
        return item(call_id, _content(sent.output, "input_text", f"{where}.output", gathered))

    return Reader(_CallOutput, read)


def _content(raw: Raw, kind: str, where: str, gathered: listed.Gathered) -> str | list[Json]:
    images = None if gathered.bounds is None else gathered.images
    return text_or_parts(raw, kind, where, images=images, parts=gathered.parts, left_out=gathered.leaving_out)


def _code_outputs(raw: Raw, where: str) -> list[Json]:
    outputs: list[Json] = []
    for place, output in enumerate(decode_list(raw, MAX_CODE_OUTPUTS, where)):
        read = decode(output, _CodeOutput, f"{where}[{place}]")
        said = {"logs": read.logs or ""} if read.type == "logs" else {"url": read.url}
        outputs.append({"type": read.type, **said})
    return outputs


def _shell_outputs(raw: Raw, where: str) -> list[Json]:
    sent = enumerate(decode_list(raw, MAX_COMMANDS, where))
    return [msgspec.to_builtins(decode(each, _ShellOutput, f"{where}[{place}]")) for place, each in sent]


def _within_size(kind: Any, raw: Raw, where: str) -> Json:
    """The object, unless its JSON is longer than a call may be. Raises InvalidRequest."""
    size = len(memoryview(raw))
    if size > MAX_ACTION_BYTES:
        raise invalid_value(where, f"{size} bytes", f"At most {MAX_ACTION_BYTES} are allowed.")
    return msgspec.to_builtins(decode(raw, kind, where))


def _exec_action(raw: Raw, where: str) -> Json:
    action = _within_size(ExecAction, raw, where)
    return action | {"env": action["env"] or {}}


def _local_shell_output(sent: Any, where: str, gathered: listed.Gathered) -> listed.LocalShellCallOutputItem:
    """The output of a local shell's call. OpenAI's has the id of the call as its own `id`."""
    given = {"call_id": sent.call_id, "id": sent.id}
    ids = [listed.checked_call_id(id, f"{where}.{member}") for member, id in given.items() if id is not None]
    if not ids:
        raise missing(f"{where}.id", "Give the call_id of the call.")
    return listed.LocalShellCallOutputItem(call_id=ids[0], output=sent.output, status=sent.status or "completed")


def _search(sent: Any, where: str, gathered: listed.Gathered) -> listed.ToolSearchCallItem:
    execution = _execution(sent, where)
    _within_size(Json, sent.arguments, f"{where}.arguments")
    return listed.ToolSearchCallItem(sent.call_id, sent.arguments, execution, sent.status or "completed")


def _found_tools(sent: Any, where: str, gathered: listed.Gathered) -> listed.ToolSearchOutputItem:
    at = f"{where}.tools"
    execution = _execution(sent, where)
    shown = _listed_tools(decode_list(sent.tools, MAX_LOADED, at), at)
    gathered.loaded.append((at, sent.tools))
    _note_replayed(gathered, at)
    return listed.ToolSearchOutputItem(sent.call_id, shown, execution, sent.status or "completed")


def _execution(sent: Any, where: str) -> listed.Execution:
    """The side that searched: by default the client where there is a call to answer. Raises InvalidRequest."""
    if sent.call_id is not None:
        listed.checked_call_id(sent.call_id, f"{where}.call_id")
    elif sent.execution == "client":
        raise missing(f"{where}.call_id", "A client's search needs it.")
    return sent.execution or ("server" if sent.call_id is None else "client")


def _listed_tools(tools: list[Raw], where: str) -> list[Any]:
    """Tools in the form in which their item is listed. Hosted ones are listed as they are echoed, so no key of
    somebody's server is kept. Raises InvalidRequest.
    """
    shown: list[Any] = []
    for place, tool in enumerate(tools):
        at = f"{where}[{place}]"
        hosted = decode(tool, ObjectKind, at).type in HOSTED
        shown.append(echo_of_hosted(decode(tool, Json, at), at) if hosted else tool)
    return shown


def _checked_reason(reason: str, where: str) -> str:
    if len(reason) > MAX_REASON_CHARS:
        raise invalid_value(where, f"{len(reason)} characters", f"It has at most {MAX_REASON_CHARS} characters.")
    return reason


def _foreign(sent: listed.ForeignItem, where: str, gathered: listed.Gathered) -> listed.ForeignItem:
    for member in sent.foreign.told:
        raw: Raw | UnsetType = getattr(sent, member)
        if not isinstance(raw, UnsetType) and bytes(memoryview(raw)[:1]) == b'"':
            decode(raw, str, f"{where}.{member}")
    return sent


# --- items that change the request ---


class _Trigger(msgspec.Struct):
    pass


class _AdditionalTools(msgspec.Struct):
    tools: Raw
    role: Literal["developer"] = "developer"


class _ConfigurationUpdate(msgspec.Struct):
    reasoning: ReasoningParam | None = None
    text: TextParam | None = None


class _Reference(msgspec.Struct):
    id: str


def _compaction_trigger(sent: _Trigger, where: str, gathered: listed.Gathered) -> listed.CompactionTriggerItem:
    if gathered.replays:
        raise invalid_value(f"{where}.type", "compaction_trigger", "Send it as the last item, or leave it out.")
    gathered.trigger = gathered.trigger or where
    return listed.CompactionTriggerItem()


def _additional_tools(sent: _AdditionalTools, where: str, gathered: listed.Gathered) -> listed.AdditionalToolsItem:
    """The item. Its hosted tools are listed as they are echoed: a key of somebody's server isn't kept."""
    at = f"{where}.tools"
    gathered.added_bytes += len(memoryview(sent.tools))
    check_bytes(gathered.added_bytes, gathered.tools_bytes)
    tools = decode_list(sent.tools, MAX_ADDED_TOOLS, at)
    gathered.added_tools += len(tools)
    if gathered.added_tools > MAX_ADDED_TOOLS:
        raise not_allowed(
            f"Too many tools in 'additional_tools': {gathered.added_tools}, at most {MAX_ADDED_TOOLS} are allowed.", at
        )
    shown = _listed_tools(tools, at)
    gathered.added.append((at, sent.tools))
    _note_replayed(gathered, at)
    return listed.AdditionalToolsItem(shown)


def _configuration_update(
    sent: _ConfigurationUpdate, where: str, gathered: listed.Gathered
) -> listed.ConfigurationUpdateItem:
    item = listed.ConfigurationUpdateItem()
    if sent.reasoning is not None and sent.reasoning.effort is not None:
        gathered.effort = sent.reasoning.effort
        item.reasoning = {"effort": sent.reasoning.effort}
    if sent.text is not None and sent.text.format != ABSENT:
        gathered.format = (sent.text.format, f"{where}.text.format")
        _note_replayed(gathered, gathered.format[1])
        item.text = {"format": sent.text.format}
    return item


def _note_replayed(gathered: listed.Gathered, where: str) -> None:
    if gathered.replays:
        gathered.replayed_at.add(where)


def _item_reference(sent: _Reference, where: str, gathered: listed.Gathered) -> listed.ItemReference:
    if not 1 <= len(sent.id) <= MAX_ITEM_ID_CHARS:
        raise invalid_value(f"{where}.id", sent.id, f"It has 1 to {MAX_ITEM_ID_CHARS} characters.")
    gathered.note_id(sent.id)
    gathered.references[sent.id] = None
    return listed.ItemReference(reference=sent.id, replayed=gathered.replays)


_STATUS: dict[str, Check] = {"status": lambda status, where: status or "completed"}
_CUT: dict[str, Check] = {"status": lambda raw, where: "incomplete" if raw == Raw(b'"incomplete"') else "completed"}
_OPERATION: dict[str, Check] = {"operation": lambda operation, where: msgspec.to_builtins(operation)}
_CALL_ID: dict[str, Check] = {"call_id": listed.checked_call_id}
_CALLED: dict[str, Check] = {"name": listed.checked_name, "namespace": listed.checked_name} | _CALL_ID | _CUT

READERS: dict[str, Reader] = {
    "message": Reader(_Message, _message),
    "function_call": _as_sent(listed.FunctionCallItem, _CALLED, namespace=str | None, status=Raw),
    "function_call_output": _call_output(listed.FunctionCallOutputItem),
    "custom_tool_call": _as_sent(listed.CustomToolCallItem, _CALLED, namespace=str | None, status=Raw),
    "custom_tool_call_output": _call_output(listed.CustomToolCallOutputItem),
    "reasoning": Reader(_Reasoning, _reasoning),
    "item_reference": Reader(_Reference, _item_reference),
    "agent_message": Reader(_AgentMessage, _agent_message),
    "compaction": _as_sent(listed.CompactionItem),
    "compaction_summary": _as_sent(listed.CompactionSummaryItem),
    "context_compaction": _as_sent(listed.ContextCompactionItem),
    "compaction_trigger": Reader(_Trigger, _compaction_trigger),
    "additional_tools": Reader(_AdditionalTools, _additional_tools),
    "configuration_update": Reader(_ConfigurationUpdate, _configuration_update),
    "code_interpreter_call": _as_sent(
        listed.CodeInterpreterCallItem, _STATUS | {"outputs": _code_outputs}, outputs=Raw
    ),
    "mcp_call": _as_sent(listed.McpCallItem, _STATUS),
    "mcp_approval_request": _as_sent(listed.McpApprovalRequestItem, id=str),
    "mcp_approval_response": _as_sent(listed.McpApprovalResponseItem, {"reason": _checked_reason}),
    "shell_call": _as_sent(
        listed.ShellCallItem,
        _CALL_ID | {"action": partial(_within_size, ShellAction), "environment": partial(_within_size, Json)},
        action=Raw,
        environment=Raw,
    ),
    "shell_call_output": _as_sent(
        listed.ShellCallOutputItem, {"output": _shell_outputs} | _CALL_ID, output=Raw, status=listed.Status
    ),
    "local_shell_call": _as_sent(listed.LocalShellCallItem, {"action": _exec_action} | _CALL_ID, action=Raw),
    "local_shell_call_output": Reader(
        _as_sent(listed.LocalShellCallOutputItem, id=str, call_id=str | None, status=listed.Status).sent,
        _local_shell_output,
    ),
    "apply_patch_call": _as_sent(
        listed.ApplyPatchCallItem,
        _CALL_ID | _OPERATION,
        operation=CreateFile | UpdateFile | DeleteFile,
    ),
    "apply_patch_call_output": _as_sent(listed.ApplyPatchCallOutputItem, _CALL_ID),
    "tool_search_call": Reader(_as_sent(listed.ToolSearchCallItem, execution=listed.Execution | None).sent, _search),
    "tool_search_output": Reader(
        _as_sent(listed.ToolSearchOutputItem, tools=Raw, execution=listed.Execution | None, status=listed.Status).sent,
        _found_tools,
    ),
    **{kind: Reader(listed.foreign_kind(kind), _foreign) for kind in listed.FOREIGN},
}
"""The types of items that are read, and their readers."""

ITEMS: Mapping[str, ReplayFate] = dict.fromkeys(READERS, ReplayFate.READ) | {
    kind: ReplayFate.LEFT_OUT for kind, foreign in listed.FOREIGN.items() if not (foreign.asked or foreign.told)
}
"""The fates of the types of items."""

_SHOWN = ("message", "reasoning", "function_call", "custom_tool_call", "their outputs", "item_reference", "compaction")
"""The types that a refusal names."""


class _Kind(msgspec.Struct):
    type: str | None = None
    role: Raw = ABSENT
    id: Raw = ABSENT


def _reader_of(raw: Raw, where: str, gathered: listed.Gathered | None = None) -> Reader:
    """The reader of the item at `where`, whose id is `gathered`. Raises InvalidRequest for a type that has none, and
    for an id that came before.
    """
    kind = decode(raw, _Kind, where)
    name = kind.type or ("message" if kind.role != ABSENT else "item_reference" if kind.id != ABSENT else None)
    if name is None:
        raise missing(f"{where}.type", "A message needs at least 'role' and 'content'.")
    if name not in READERS:
        raise not_served(f"{where}.type", name, f"Items that the model reads are: {', '.join(_SHOWN)}.")
    if gathered is not None and name not in _NAME_ANOTHER and (unique := _UNIQUE.fullmatch(memoryview(kind.id))):
        gathered.note_id(unique[1].decode())
    return READERS[name]


# --- the whole input ---


def read_input(raw: Raw, gathered: listed.Gathered, *, max_items: int) -> Generator[None, None, list[listed.InputItem]]:
    """Read `input`, a text or a list of items, yielding now and then. Raises InvalidRequest, naming the item."""
    long = len(memoryview(raw)) > listed.BYTES_A_STEP
    first = bytes(memoryview(raw)[:1])
    if first == b'"':
        return [listed.MessageItem("user", [{"type": "input_text", "text": decode(raw, str, "input")}])]
    if raw == ABSENT:
        return []
    if first != b"[":
        raise InvalidRequest(
            "Invalid type for 'input': expected a string or a list of items.",
            code="invalid_type",
            param="input",
        )
    if long:
        yield
    sent = decode_list(raw, max_items, "input")
    if long:
        yield
    items: list[listed.InputItem] = []
    read = parts = 0
    new = NewPart(0, False) if gathered.bounds is None else (yield from new_in(sent))
    for place, item in enumerate(sent, 1):
        gathered.replays = place <= new.first
        gathered.leaving_out = gathered.left_out if gathered.replays or new.answered else None
        items.append((yield from _read_sent(item, gathered.where(place - 1), gathered)))
        parts = _count_parts(parts, items[-1], max_items)
        read += len(memoryview(item))
        if place % ITEMS_A_STEP == 0 or read > listed.BYTES_A_STEP:
            read = 0
            yield
    if gathered.trigger is not None and gathered.trigger != gathered.where(len(items) - 1):
        raise invalid_value(
            f"{gathered.trigger}.type", "compaction_trigger", "Send it as the last item, or leave it out."
        )
    return items


def _read_sent(raw: Raw, where: str, gathered: listed.Gathered) -> Generator[None, None, listed.InputItem]:
    """Read an item that was sent; one of a history is left out where it can't be read, and an output with its call.
    Raises InvalidRequest.
    """
    if not gathered.lost or not answers((seen := peek(raw)).type) or seen.call not in gathered.lost:
        try:
            item = yield from _read_item(raw, where, gathered)
            if gathered.lost and not isinstance(item, listed.FunctionCallOutputItem):
                gathered.lost.discard(peek(raw).call)  # the id is used again
            return item
        except InvalidRequest as refusal:
            if not gathered.replays or isinstance(refusal, listed.DuplicateItem):
                raise
        yield
        seen = peek(raw)
        gathered.images = []
        if not answers(seen.type):
            gathered.lost.add(seen.call)
    gathered.left_out.add(seen.kind)
    return listed.LeftOutItem(sent=seen.type, role=seen.role)


def _read_item(
    raw: Raw, where: str, gathered: listed.Gathered, *, stored: bool = False
) -> Generator[None, None, listed.InputItem]:
    """Read the item at `where`, yielding between the scans of a long one: each of 8 MB takes up to 16 ms."""
    long = len(memoryview(raw)) > listed.BYTES_A_STEP
    reader = _reader_of(raw, where, None if stored else gathered)
    if long:
        yield
    sent = decode(raw, reader.sent, where)
    if long:
        yield
    gathered.parts = (yield from _parts_of_long(sent, where, gathered)) if long else None
    item = reader.read(sent, where, gathered)
    if gathered.images:
        yield from _read_pictures(gathered, stored=stored)
    return item


def _parts_of_long(
    sent: msgspec.Struct, where: str, gathered: listed.Gathered
) -> Generator[None, None, list[ContentPart] | None]:
    """The parts of a long message, or of a call's output, in steps; None of anything else, and of a text."""
    name = "content" if isinstance(sent, _Message) else "output" if isinstance(sent, _CallOutput) else None
    raw: Raw = ABSENT if name is None else getattr(sent, name)
    if bytes(memoryview(raw)[:1]) != b"[":
        return None
    return (yield from parts_in_steps(raw, f"{where}.{name}", gathered.leaving_out))


def _read_pictures(gathered: listed.Gathered, *, stored: bool) -> Generator[None, None, None]:
    """Read the pictures of an item; those of a `stored` one that are somewhere else stay there. Raises InvalidRequest
    for one that can't be taken, and for too many.
    """
    bounds = gathered.bounds or USUAL_BOUNDS
    images, gathered.images = gathered.images, []
    for part, place in images:
        where = f"{place}.image_url"
        try:
            if part["file_id"] is not None and not stored:
                raise no_such_file(f"{place}.file_id", part["file_id"])
            found = yield from read_picture(part, where, bounds)
        except InvalidRequest:
            if stored or gathered.leaving_out is None:
                raise
            gathered.leave_out(part)
            continue
        if found is not None:
            gathered.take(found, part, where, bounds)
        elif not stored:
            gathered.elsewhere.append(listed.PictureElsewhere(part, where, gathered.leaving_out is not None))


def resolve(
    items: Sequence[listed.InputItem], stored: Mapping[str, Raw], gathered: listed.Gathered, *, max_items: int
) -> Generator[None, None, list[listed.InputItem]]:
    """The items with each reference replaced by the item that is stored under its id.

    Raises InvalidRequest for an id that `stored` lacks, and for items that would be too much if they were sent.
    """
    resolved: list[listed.InputItem] = []
    parts = size = 0
    for place, item in enumerate(items):
        known = item
        if isinstance(item, listed.ItemReference):
            where = gathered.where(place)
            raw = stored.get(item.reference)
            if raw is None and item.replayed:
                gathered.left_out.add(item.kind)
                resolved.append(listed.LeftOutItem(sent=item.kind))
                continue
            if raw is None:
                raise invalid_value(f"{where}.id", item.reference, "No item with this id is stored; send it whole.")
            size += len(memoryview(raw))
            if size > listed.MAX_REFERENCED_BYTES:
                raise too_much_referenced(f"{where}.id", item.reference)
            try:
                known = yield from _read_item(raw, where, gathered, stored=True)
                if isinstance(known, SENT_WHOLE):
                    advice = f"Send an item of type {known.kind} whole."
                    raise invalid_value(f"{where}.id", item.reference, advice)
            except InvalidRequest:
                if not item.replayed:
                    raise
                gathered.left_out.add(item.kind)
                known = listed.LeftOutItem(sent=item.kind)
            yield
        resolved.append(known)
        parts = _count_parts(parts, known, max_items)
    return resolved


def too_much_referenced(where: str, reference: str) -> InvalidRequest:
    """The refusal of a reference with which the stored items of a request are more than can be read."""
    return invalid_value(
        where,
        reference,
        f"The stored items that 'input' refers to have more than {listed.MAX_REFERENCED_BYTES} bytes of JSON.",
    )


def _count_parts(parts: int, item: listed.InputItem, max_items: int) -> int:
    """The count of content parts with the item's own added. Raises InvalidRequest for too many."""
    parts += len(item.parts)
    if parts > max_items * PARTS_AN_ITEM:
        raise not_allowed(
            f"Too many content parts in 'input': more than {max_items * PARTS_AN_ITEM}. Join their texts.", "input"
        )
    return parts


def message_of(text: bytes) -> bytes:
    """The JSON of the user message that a text, as JSON, stands for."""
    return b'{"type":"message","role":"user","content":%b}' % text


def led_by(items: bytes, raw: Raw) -> Raw:
    """A list of items, as JSON, before an input as it was sent. An input that is neither text nor list is returned as
    it is: `read_input` refuses it.
    """
    sent = bytes(raw)
    if sent == b"null":
        return Raw(items)
    if items == b"[]" or sent[:1] not in (b'"', b"["):
        return raw
    own = message_of(sent) + b"]" if sent[:1] == b'"' else sent[1:]
    comma = b"" if _NOTHING_MORE.match(own) else b","
    return Raw(items[:-1] + comma + own)


def identify(items: Sequence[listed.InputItem], response_id: str) -> list[listed.InputItem]:
    """Give each item its id, which follows from its place in the input of this response; the items that are listed."""
    shown = [(place, item) for place, item in enumerate(items) if not isinstance(item, listed.LeftOutItem)]
    for place, item in shown:
        item.id = ids.input_item_id(response_id, item.kind, place)
    return [item for _, item in shown]
