"""Anthropic's Messages on the wire: a request as one of the Responses API, and a response as a message.

    body ─▶ the body of a create request ─▶ request.read_create      Response ─▶ message

A request is only translated here, as one for a chat completion is (chat.py). A thinking block's signature is our sealed
reasoning, so that a client that sends it back goes on from the very tokens. Blocks, tools and members that would change
the answer and aren't served are refused by name. Source: anthropic 2.14, types/message_create_params.py.
"""

import re
from base64 import b64encode
from collections.abc import Generator, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from service.api.content import MAX_PARTS
from service.api.items import BYTES_A_STEP
from service.api.replay import BLOCKS, ReplayFate, kind_of
from service.api.request import MAX_INT, MAX_STOPS, MAX_USER_CHARS
from service.api.response import FunctionCall, Message, Reasoning, Response
from service.decoding import ABSENT, Json, ObjectKind, decode, decode_list, shown_raw
from service.errors import InvalidRequest, invalid_value, missing, not_served
from service.features.chats.chat import (
    TEXT_ONLY,
    ChatLimits,
    ParameterNames,
    Place,
    Renamed,
    Thinking,
    TranslatedChat,
    Translation,
    read_tools,
    refuse_unserved,
    rules,
)

AS_SENT = ("model", "temperature", "top_p", "top_k", "stream", "store", "prompt_cache_key")
"""Members that a create request has under the same name; the last two are ours."""

_NOT_HERE = "Leave it out."
UNSERVED: dict[str, tuple[bytes, str]] = {
    "container": (b"null", _NOT_HERE),
    "mcp_servers": (b"[]", "POST /v1/responses has tools that the service runs."),
    "speed": (b'"standard"', _NOT_HERE),
}
"""Members that aren't served, each with the value at which it changes nothing besides null, and with advice."""

_TOOL_UNSERVED: dict[str, tuple[bytes, str]] = {
    "allowed_callers": (b'["direct"]', "Only the model can call it."),
    "input_examples": (b"[]", "Give examples in its description."),
}

INVALID = "INVALID_JSON"
"""The member of an input that has what a model called a tool with, where that is no object of JSON."""

BUDGETS = ((4096, "low"), (16384, "medium"))
"""The budgets of thinking below which an effort is meant; from the last on it is high."""

MAX_REWRITTEN_BYTES = 1_048_576
"""The longest JSON of a document's text, and of an input: each is written in another form at once, in some 5 ms."""

MAX_PASSAGES = 128
"""The most blocks of a document's own: they are read in one go."""

MAX_EDITS = 16
"""The most edits of a context."""

SEAL = b'"hs_'
"""The beginning of a signature that is made here. That of anybody else says nothing: its thinking is a text, and left
out where it is redacted.
"""

_OWN_TOOLS = "Declare a tool of yours, with 'name' and 'input_schema': this service doesn't run Anthropic's tools."
_BLOCKS = "Send blocks of type 'text', 'image', 'document', 'tool_use', 'tool_result' or 'thinking'."

_SEARCH = re.compile(r"tool_?search", re.IGNORECASE)
"""A name that a client's own search for tools has: tools with `defer_loading` are told of once it has found them."""

_FAILED = b'{"type":"text","text":"Error: "}'
"""The part before the result of a tool that failed."""


class _Metadata(msgspec.Struct, forbid_unknown_fields=True):
    user_id: Annotated[str, Meta(max_length=MAX_USER_CHARS)] | None = None


class _Thinking(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Annotated[int, Meta(ge=1, le=MAX_INT)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class _Format(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["json_schema"]
    schema: Raw = ABSENT


class _Output(msgspec.Struct, forbid_unknown_fields=True):
    effort: Raw = ABSENT
    format: _Format | None = None
    task_budget: Raw = ABSENT


class _Edit(msgspec.Struct):
    type: str


class _Managing(msgspec.Struct, forbid_unknown_fields=True):
    edits: Raw = ABSENT


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["auto", "any", "tool", "none"]
    name: Raw = ABSENT
    disable_parallel_tool_use: bool | None = None


class _Tool(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    type: str | None = None
    description: Raw = ABSENT
    input_schema: Raw = ABSENT
    strict: Raw = ABSENT
    cache_control: Raw = ABSENT
    eager_input_streaming: Raw = ABSENT
    defer_loading: bool | None = None
    allowed_callers: Raw = ABSENT
    input_examples: Raw = ABSENT


class _Own(msgspec.Struct, forbid_unknown_fields=True):
    """The members that a create request has in another form, or that are of meaning to Anthropic alone."""

    messages: Raw = ABSENT
    system: Raw = ABSENT
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_INT)] | None = None
    stop_sequences: Raw = ABSENT
    metadata: _Metadata | None = None
    thinking: _Thinking | None = None
    output_config: _Output | None = None
    tools: Raw = ABSENT
    tool_choice: _Choice | None = None
    context_management: _Managing | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: Raw = ABSENT
    inference_geo: Raw = ABSENT


_Body: Any = msgspec.defstruct(
    "MessagesBody",
    [(name, Raw, ABSENT) for name in (*AS_SENT, *UNSERVED)],
    bases=(_Own,),
    forbid_unknown_fields=True,
)


class _Message(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: Raw = ABSENT


class _Source(msgspec.Struct):
    type: str
    media_type: str = ""
    data: Raw = ABSENT
    url: Raw = ABSENT
    file_id: str | None = None
    content: Raw = ABSENT


class _Block(msgspec.Struct):
    type: str
    tool_name: str | None = None
    text: Raw = ABSENT
    source: _Source | str | None = None
    title: Raw = ABSENT
    context: str | None = None
    citations: Raw = ABSENT
    thinking: Raw = ABSENT
    signature: Raw = ABSENT
    data: Raw = ABSENT
    id: Raw = ABSENT
    name: Raw = ABSENT
    input: Raw = ABSENT
    tool_use_id: Raw = ABSENT
    content: Raw = ABSENT
    is_error: bool | None = None


class _SearchResult(msgspec.Struct):
    title: str
    source: str
    content: Raw = ABSENT


class _Passage(msgspec.Struct):
    text: str


class _Broken(msgspec.Struct, forbid_unknown_fields=True):
    INVALID_JSON: str


class _Citations(msgspec.Struct):
    enabled: bool | None = None


# --- names ---

_CALL: Renamed = {"call_id": "id", "arguments": "input"}
_OUTPUT: Renamed = {"call_id": "tool_use_id", "output": "content"}
_THOUGHT: Renamed = {"encrypted_content": "signature"}
_HIDDEN: Renamed = {"encrypted_content": "data"}

_RULES = rules(
    (r"text\.format", "output_config.format"),
    (r"reasoning\.effort", "output_config.effort"),
    (r"(tools\[\d+\])\.parameters", r"\1.input_schema"),
    (r"stop", "stop_sequences"),
    (r"instructions", "system"),
    (r"input|previous_response_id", "messages"),
)
_INSIDE = rules((r"\.file_id", ".source.file_id"), (r"\.(?:image_url|file_data)", ".source"), (r"\.filename", ".title"))


# --- requests ---


def read_messages(body: bytes, limits: ChatLimits, *, counts: bool = False) -> Generator[None, None, TranslatedChat]:
    """Read the body of a request, yielding now and then; one that only `counts` tokens makes no answer. Raises
    InvalidRequest.
    """
    sent: _Own = decode(body, _Body)
    if len(body) > BYTES_A_STEP:
        yield
    refuse_unserved(sent, UNSERVED)
    if sent.max_tokens is None and not counts:
        raise missing("max_tokens", "It is the most tokens that an answer may have.")
    translation = _Messages()
    if sent.system != ABSENT:
        translation.instructions += yield from translation.words(sent.system, "system")
    yield from translation.take(sent.messages, limits)
    translation.left_out.add_all(block.type for block, _ in translation.made.values())
    if translation.speaks and not counts:
        advice = "An answer can't be continued. Let the last message be the user's, such as 'Continue.'."
        raise not_served(f"{translation.last}.role", "assistant", advice)
    thinking = _display(sent.thinking)
    for where, kind in _hints(sent):
        if limits.refuses:
            raise not_served(where, kind, _NOT_HERE)
        translation.left_out.add(kind)
    wanted = _settings(sent)
    tools_left_out: list[str] = []
    if sent.tools != ABSENT:
        wanted["tools"] = _read_tools(sent.tools, limits, translation, tools_left_out)
    if not counts:
        wanted["max_output_tokens"] = sent.max_tokens
    if thinking != "hidden":
        wanted["include"] = ["reasoning.encrypted_content"]
    written = yield from translation.as_json(sent, AS_SENT, wanted)
    names = ParameterNames(translation.places, _RULES, "max_tokens", _INSIDE)
    return TranslatedChat(written, names, tuple(translation.left_out), thinking, tools_left_out=tools_left_out)


def _display(sent: _Thinking | None) -> Thinking:
    if sent is None or sent.type == "disabled":
        return "hidden"
    return "omitted" if sent.display == "omitted" else "shown"


def _hints(sent: _Own) -> Iterator[tuple[str, str]]:
    """The places and the kinds of what only has a model see less, or hurry: an answer is as good without. Raises
    InvalidRequest.
    """
    at, edits = "context_management.edits", sent.context_management.edits if sent.context_management else ABSENT
    for place, raw in enumerate(decode_list(edits, MAX_EDITS, at)):
        kind = decode(raw, _Edit, f"{at}[{place}]").type
        if not kind.startswith("clear_thinking_"):  # earlier thinking is in no prompt behind its answer anyway
            yield f"{at}[{place}].type", kind
    if sent.output_config is not None and sent.output_config.task_budget != ABSENT:
        yield "output_config.task_budget", "task_budget"


def _settings(sent: _Own) -> Json:
    """The members of a create request that have another form here. Raises InvalidRequest."""
    wanted: Json = {}
    if sent.stop_sequences != ABSENT:
        wanted["stop"] = decode_list(sent.stop_sequences, MAX_STOPS, "stop_sequences")
    if sent.metadata is not None:
        wanted["user"] = sent.metadata.user_id
    output = sent.output_config or _Output()
    if output.effort != ABSENT:
        wanted["reasoning"] = {"effort": output.effort}
    elif (effort := _effort(sent.thinking)) is not None:
        wanted["reasoning"] = {"effort": effort}
    if output.format is not None:
        form = {"type": "json_schema", "name": "answer", "schema": output.format.schema, "strict": True}
        wanted["text"] = {"format": form}
    if (choice := sent.tool_choice) is not None:
        wanted["parallel_tool_calls"] = not choice.disable_parallel_tool_use
        named = {"type": "function", "name": choice.name}
        wanted["tool_choice"] = {"any": "required", "tool": named}.get(choice.type, choice.type)
    return wanted


def _effort(sent: _Thinking | None) -> str | None:
    """The effort of thinking. Raises InvalidRequest."""
    if sent is None or sent.type == "adaptive":
        return None
    if sent.type == "disabled":
        return "none"
    if sent.budget_tokens is None:
        raise missing("thinking.budget_tokens", "Give it, or 'adaptive' as the type.")
    return next((effort for most, effort in BUDGETS if sent.budget_tokens < most), "high")


def _read_tools(raw: Raw, limits: ChatLimits, translation: "_Messages", left_out: list[str]) -> list[Json]:
    """The tools of a request, without those that the client has yet to find, and without Anthropic's own, which are
    left out. Raises InvalidRequest.
    """

    def read_one(raw: Raw, where: str) -> _Tool | None:
        kind = decode(raw, ObjectKind, where).type
        if kind in (None, "custom"):
            return _tool(raw, where)
        if limits.refuses:
            raise not_served(f"{where}.type", kind, _OWN_TOOLS)
        left_out.append(str(kind))
        return None

    tools = [tool for tool in read_tools(raw, limits, read_one) if tool is not None]
    searched = any(not tool.defer_loading and _SEARCH.search(tool.name) for tool in tools)
    shown = (tool for tool in tools if not (tool.defer_loading and searched) or tool.name in translation.found)
    return [_function(tool) for tool in shown]


def _tool(raw: Raw, where: str) -> _Tool:
    tool = decode(raw, _Tool, where)
    refuse_unserved(tool, _TOOL_UNSERVED, f"{where}.")
    if tool.input_schema == ABSENT:
        raise missing(f"{where}.input_schema", "It is the JSON schema of the tool's arguments.")
    return tool


def _function(tool: _Tool) -> Json:
    told = {"description": tool.description, "parameters": tool.input_schema, "strict": tool.strict}
    return {"type": "function", "name": tool.name} | {name: raw for name, raw in told.items() if raw != ABSENT}


class _Messages(Translation):
    """The items that messages become: one for each block, but for texts and files of the user's that follow each other,
    which are one message.
    """

    kind = _Message

    def __init__(self) -> None:
        super().__init__()
        self.speaks, self.last = False, ""
        """Whether the last message is the assistant's, and its place."""
        self.found: set[str] = set()
        """The names of the tools that a search has found."""
        self.made: dict[bytes, tuple[_Block, str]] = {}
        """The calls that a server ran and whose results are yet to come, by their ids, with their places."""

    def message(self, sent: _Message, where: str) -> Generator[None, None, None]:
        """See Translation."""
        self.speaks, self.last = sent.role == "assistant", where
        role = sent.role.encode() if sent.role != "system" else b"developer"
        if bytes(memoryview(sent.content)[:1]) != b"[":
            if not self.speaks or sent.content != _SAYS_NOTHING:
                self.say(Place(where), role, bytes(sent.content))
            return
        blocks = decode_list(sent.content, MAX_PARTS, f"{where}.content")
        parts: list[bytes] = []
        for number, raw in enumerate(blocks):
            at = f"{where}.content[{number}]"
            if self.speaks:
                with self.leaving_out(raw):
                    self._spoken(raw, at, last=number == len(blocks) - 1)
            elif kind_of(raw) == "tool_result":
                self._heard(role, parts, where, number)
                with self.leaving_out(raw):
                    yield from self._result(raw, at)
            else:
                parts.append(self.part_or_line(raw, at, self._part))
            if self.had_enough(raw):
                yield
        self._heard(role, parts, where, len(blocks))

    def _heard(self, role: bytes, parts: list[bytes], where: str, end: int) -> None:
        """Add the parts before the block at `end` as a message, and leave none."""
        if any(parts):
            self.say(Place(where, before=end - len(parts)), role, b"[%b]" % b",".join(filter(None, parts)))
        parts.clear()

    def _result(self, raw: Raw, where: str) -> Generator[None, None, None]:
        block = decode(raw, _Block, where)
        if block.tool_use_id == ABSENT:
            raise missing(f"{where}.tool_use_id", "Name the answered call.")
        raw = _SAYS_NOTHING if block.content == ABSENT else block.content
        content = yield from self.content(raw, f"{where}.content", self._part)
        if block.is_error:
            text = b'{"type":"text","text":%b}' % content if raw != _SAYS_NOTHING else b""
            parts = content[1:-1] if content.startswith(b"[") else text
            content = b"[%b]" % b",".join(filter(None, (_FAILED, parts)))
        self.output(Place(where, _OUTPUT, -1 if block.is_error else 0), bytes(block.tool_use_id), content)

    def _spoken(self, raw: Raw, where: str, *, last: bool) -> None:
        """Add a block of the model's own. What it said before anything else was no answer yet."""
        block = decode(raw, _Block, where)
        if block.type == "text":
            if block.text != _SAYS_NOTHING:
                phase = b"" if last else b"commentary"
                self.say(Place(where, {"content": "text"}), b"assistant", bytes(block.text), phase)
        elif block.type == "thinking":
            self._thought(block, where)
        elif block.type == "redacted_thinking":
            data = bytes(block.data)
            if data.startswith(SEAL) or not data.startswith(b'"'):  # what is no text is refused with the item
                item = b'{"type":"reasoning","summary":[],"encrypted_content":%b}' % data
                self.add(Place(where, _HIDDEN), item)
            else:
                self.left_out.add(block.type)
        elif block.type == "tool_use":
            self.call(Place(where, _CALL), bytes(block.id), bytes(block.name), _arguments(block.input, where))
        elif block.type in ("server_tool_use", "mcp_tool_use") and self.replays:
            self.made[bytes(block.id)] = block, where
        elif BLOCKS.get(block.type) is ReplayFate.TEXT and bytes(block.tool_use_id) in self.made and self.replays:
            self._ran(*self.made.pop(bytes(block.tool_use_id)), block)
        elif block.type == "compaction" and self.replays:
            self._compacted(block, where)
        else:
            raise not_served(f"{where}.type", block.type, _BLOCKS)

    def _ran(self, call: _Block, where: str, result: _Block) -> None:
        """Add a call that a server ran, and what came of it."""
        told = msgspec.json.encode(_text_of(result.content, where))
        self.call(Place(where, _CALL), bytes(call.id), bytes(call.name), _arguments(call.input, where))
        self.output(Place(where), bytes(call.id), told)

    def _compacted(self, block: _Block, where: str) -> None:
        """Put a summary in the place of all before it."""
        summary = decode(block.content, str, f"{where}.content")
        if not summary:
            raise missing(f"{where}.content", "It is the summary.")
        self.items.clear()
        self.places.clear()
        self.say(Place(where), b"user", msgspec.json.encode(f"[A summary of the conversation so far:]\n{summary}"))

    def _part(self, raw: Raw, where: str) -> bytes:
        """The JSON of a part, or of several with commas, in the form of an item's. Raises InvalidRequest."""
        block = decode(raw, _Block, where)
        if block.type == "tool_reference" and block.tool_name is not None:
            self.found.add(block.tool_name)
            return _text(f"Loaded: {block.tool_name}.")
        if block.type == "browser_state":
            return _text(_text_of(raw, where))
        if block.type == "search_result":
            found = decode(raw, _SearchResult, where)
            passages = decode_list(found.content, MAX_PARTS, f"{where}.content")
            texts = [decode(each, _Passage, f"{where}.content").text for each in passages]
            return _text("\n".join((f"[Search result: {found.title} ({found.source})]", *texts, "")))
        if block.type == "document":
            if decode(block.citations, _Citations | None, f"{where}.citations") not in _UNCITED:
                if not self.leaves_parts:
                    raise not_served(f"{where}.citations", "enabled", "Answers are texts; leave it out.")
                self.left_out.add("citations")
            parts = [_text(f"[About the next document: {block.context}]\n")] if block.context else []
            if isinstance(block.source, _Source) and block.source.type == "content":
                return b",".join((*parts, *self._parts_of(block.source, where)))
            return b",".join((*parts, _part(block, where)))
        return _part(block, where)

    def _parts_of(self, source: _Source, where: str) -> list[bytes]:
        """The parts of a document that are blocks of its own."""
        at = f"{where}.source.content"
        if bytes(memoryview(source.content)[:1]) == b'"':
            return [b'{"type":"text","text":%b}' % bytes(source.content)]
        blocks = enumerate(decode_list(source.content, MAX_PASSAGES, at))
        return [
            self.part_or_line(raw, f"{at}[{place}]", lambda raw, at: _part(decode(raw, _Block, at), at))
            for place, raw in blocks
        ]

    def _thought(self, block: _Block, where: str) -> None:
        thought, signature = bytes(block.thinking), bytes(block.signature)
        if not thought.startswith(b'"'):
            raise invalid_value(f"{where}.thinking", shown_raw(block.thinking), "It is a text.")
        content = b'{"type":"reasoning_text","text":%b}' % thought if len(thought) > 2 else b""
        sealed = b',"encrypted_content":%b' % signature if signature.startswith(SEAL) else b""
        if content or sealed:
            item = b'{"type":"reasoning","summary":[],"content":[%b]%b}' % (content, sealed)
            self.add(Place(where, _THOUGHT), item)
        elif signature not in _NO_SIGNATURE:
            self.left_out.add(block.type)


_SAYS_NOTHING = Raw(b'""')
_NO_SIGNATURE = (b"null", b'""')


def _text(said: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": said})


def _text_of(raw: Raw, where: str) -> str:
    """The answer of a server's tool as the model is told: its JSON without sealed and binary members. Raises
    InvalidRequest for one that is too long.
    """
    _check_size(raw, f"{where}.content")
    if bytes(memoryview(raw)[:1]) == b'"':
        return decode(raw, str, f"{where}.content")
    return _OPAQUE.sub(b"", bytes(raw)).decode(errors="replace")


_OPAQUE = re.compile(
    rb'"(?:encrypted_\w{1,32}|data|signature|file_id)"\s{0,8}:\s{0,8}"[^"\\]*"\s{0,8},?|'
    rb',\s{0,8}"(?:encrypted_\w{1,32}|data|signature|file_id)"\s{0,8}:\s{0,8}"[^"\\]*"(?=\s{0,8}\})'
)
"""The members of a tool's answer, in JSON, that say nothing to a model: what is sealed, or base64."""


def _arguments(raw: Raw, where: str) -> bytes:
    """The JSON of a call's arguments, which are a text. Raises InvalidRequest."""
    written = b"{}" if raw == ABSENT else bytes(raw)
    if not written.startswith(b"{"):
        raise invalid_value(f"{where}.input", shown_raw(raw), "It is an object.")
    _check_size(raw, f"{where}.input")
    if INVALID.encode() in written[: 2 * len(INVALID)]:
        try:
            return msgspec.json.encode(decode(raw, _Broken).INVALID_JSON)
        except InvalidRequest:  # an input that only looks like it
            pass
    try:
        return msgspec.json.encode(written.decode())
    except UnicodeDecodeError:
        told = f"The value of '{where}.input' could not be parsed as JSON: it is not valid UTF-8."
        raise InvalidRequest(told, code="invalid_json", param=f"{where}.input") from None


def _check_size(raw: Raw, where: str) -> None:
    if (size := len(memoryview(raw))) > MAX_REWRITTEN_BYTES:
        raise invalid_value(where, f"{size} bytes", f"At most {MAX_REWRITTEN_BYTES} bytes are allowed.")


def _part(block: _Block, where: str) -> bytes:
    """The JSON of a part in the form of an item's. Raises InvalidRequest."""
    if block.type == "text":
        return b'{"type":"text","text":%b}' % bytes(block.text)
    if block.type not in ("image", "document"):
        raise not_served(f"{where}.type", block.type, TEXT_ONLY)
    if not isinstance(source := block.source, _Source):
        raise missing(f"{where}.source", "It has the file.")
    if block.type == "image" and source.type == "url":
        return b'{"type":"input_image","image_url":%b}' % bytes(source.url)
    if source.type == "file" and source.file_id is not None:
        kind, id = "image" if block.type == "image" else "file", msgspec.json.encode(source.file_id)
        return b'{"type":"input_%b","file_id":%b}' % (kind.encode(), id)
    if source.type != "base64" and (block.type, source.type) != ("document", "text"):
        raise not_served(f"{where}.source.type", source.type, "Send the file itself, as base64.")
    data = bytes(source.data)
    if not data.startswith(b'"'):
        raise invalid_value(f"{where}.source.data", shown_raw(source.data), "It is a text.")
    if block.type == "image":
        begin = msgspec.json.encode(f"data:{source.media_type};base64,")[:-1]
        return b'{"type":"input_image","image_url":%b%b}' % (begin, data[1:])
    if source.type == "text":
        _check_size(source.data, f"{where}.source.data")
        data = b'"%b"' % b64encode(decode(source.data, str, f"{where}.source.data").encode())
    return b'{"type":"input_file","filename":%b,"file_data":%b}' % (bytes(block.title), data)


_UNCITED = (None, _Citations(False), _Citations())


# --- answers ---


def message(response: Response, thinking: Thinking) -> Json:
    """The message that a response is."""
    blocks = (block_of(item, thinking) for item in response.output)
    return opening(response) | {
        "content": [block for block in blocks if block is not None],
        **stop_of(response),
        "usage": tokens_of(response),
    }


def opening(response: Response) -> Json:
    """A message before anything was said, its id the response's, renamed. Its tokens are counted at the end."""
    return {
        "id": f"msg_{response.id.partition('_')[2]}",
        "type": "message",
        "role": "assistant",
        "model": response.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def block_of(item: object, thinking: Thinking) -> Json | None:
    """The block that an item is; None for one that is not shown, or says nothing."""
    if isinstance(item, Message):
        text = "".join(part.text for part in item.content)
        return {"type": "text", "text": text} if text else None
    if isinstance(item, FunctionCall):
        return {"type": "tool_use", "id": item.call_id, "name": item.name, "input": _input(item.arguments)}
    if not isinstance(item, Reasoning) or thinking == "hidden":
        return None
    text = "".join(part.text for part in item.content) if thinking == "shown" else ""
    signature = signature_of(item)
    return {"type": "thinking", "thinking": text, "signature": signature} if text or signature else None


def signature_of(item: Reasoning) -> str:
    """The sealed form of a reasoning; empty where it has none."""
    return item.encrypted_content if isinstance(item.encrypted_content, str) else ""


def _input(arguments: str) -> Raw | Json:
    """The arguments of a call as an object, numbers as they were."""
    written = arguments.encode(errors="surrogatepass").strip() or b"{}"
    try:
        _object.decode(written)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {INVALID: arguments}
    return Raw(written)


_object = msgspec.json.Decoder(dict[str, Raw])


def stop_of(response: Response) -> Json:
    """Why the model ended."""
    details, stop = response.incomplete_details, response.harmonium and response.harmonium.stop
    if details is not None and details.reason == "max_output_tokens":
        return {"stop_reason": "max_tokens", "stop_sequence": None}
    if stop:
        return {"stop_reason": "stop_sequence", "stop_sequence": stop}
    called = any(isinstance(item, FunctionCall) for item in response.output)
    return {"stop_reason": "tool_use" if called else "end_turn", "stop_sequence": None}


def tokens_of(response: Response) -> Json:
    """The tokens of a response. Those of the prompt that were cached are counted apart."""
    usage = response.usage
    cached = 0 if usage is None else usage.input_tokens_details.cached_tokens
    return {
        "input_tokens": 0 if usage is None else usage.input_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": 0 if usage is None else usage.output_tokens,
    }
