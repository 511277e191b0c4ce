"""Chat Completions' wire: a request as one of the Responses API, and a response as a chat completion.

    body ─▶ the body of a create request ─▶ request.read_create      Response ─▶ completion

A request is only translated here: its values are checked where those of a create request are, and a refusal gets the
names of this API afterwards (`ParameterNames`). So tools, formats, limits and sampling have one reader. Messages
become items: system and developer messages at the beginning are the instructions, and the reasoning that clients send
back is an item as well. Texts stay the JSON that came. Members that would change the answer and aren't served are
refused by name.
"""

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Raw

from service.api.content import MAX_PARTS, in_place_of, without_billing
from service.api.history import MAX_CALLS
from service.api.items import BYTES_A_STEP
from service.api.replay import LeftOut, NewPart, kind_of, new_in, peek
from service.api.request import MAX_INT
from service.api.response import CustomToolCall, FunctionCall, Message, Reasoning, Response, ResponseStatus
from service.api.tools.read import check_bytes
from service.decoding import ABSENT, Json, decode, decode_list, shown_raw
from service.errors import ApiError, InvalidRequest, invalid_value, missing, not_served
from service.responses.prompt.read import MAX_ITEMS, MAX_TOOLS, MAX_TOOLS_BYTES
from service.settings.core import CoreSettings

T = TypeVar("T")

MESSAGES_A_STEP = 128

APART = "\n\n"
"""The text between two messages of one answer, and between leading instructions: Chat Completions has one text."""

AS_SENT = (
    *("model", "temperature", "top_p", "stream", "store", "metadata", "user", "seed", "stop", "presence_penalty"),
    *("frequency_penalty", "logit_bias", "service_tier", "prompt_cache_key", "prompt_cache_retention", "moderation"),
    *("prompt_cache_options", "safety_identifier", "parallel_tool_calls", "top_k", "min_p", "repetition_penalty"),
    *("cache_salt", "priority", "request_id", "chat_template_kwargs", "structured_outputs", "skip_special_tokens"),
    *("spaces_between_special_tokens", "include_stop_str_in_output", "ignore_eos", "mm_processor_kwargs"),
    *("media_io_kwargs", "kv_transfer_params", "min_tokens"),
)
"""Members that a create request has under the same name."""

_THERE = "HARMONIUM_CHATS=pass-on passes it to the engine's server."
UNSERVED: dict[str, tuple[bytes, str]] = {
    **dict.fromkeys(("prompt_logprobs", "truncate_prompt_tokens", "thinking_token_budget"), (b"null", _THERE)),
    **dict.fromkeys(("stop_token_ids", "bad_words", "allowed_token_ids"), (b"[]", _THERE)),
    **dict.fromkeys(("continue_final_message", "echo", "add_special_tokens"), (b"false", _THERE)),
    **dict.fromkeys(("return_token_ids", "return_tokens_as_token_ids"), (b"false", _THERE)),
    "add_generation_prompt": (b"true", _THERE),
    "n": (b"1", "harmonium makes one answer. With HARMONIUM_CHATS=pass-on the engine's server may make more."),
    "functions": (b"[]", "Send 'tools' in their place."),
    "function_call": (b'"none"', "Send 'tool_choice' in its place."),
    "modalities": (b'["text"]', "Answers are texts."),
    "audio": (b"null", "Answers are texts."),
    "prediction": (b"null", "Leave it out."),
    "web_search_options": (b"null", "POST /v1/responses has tools that the service runs."),
}
"""Members that aren't served, each with the value at which it changes nothing besides null, and with advice."""

MAX_TOOL_NAME_CHARS = 64
"""The longest name of a tool here. Source: OpenAI's reference of Chat Completions."""

_NOTHING_SAID = b'{"type":"reasoning","summary":[]}'
"""The item that an assistant's message without anything to show becomes: what comes before it is a history."""

_EMPTY = (b"null", b'""', b"[]")
"""Contents that say nothing."""

TEXT_ONLY = "The model reads text; send parts of type 'text'."
_OWN_TOOLS = "Give 'function' or 'custom': only POST /v1/responses has tools that the service runs."


class _StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class _Own(msgspec.Struct, forbid_unknown_fields=True):
    """The members that a create request has in another form."""

    messages: Raw = ABSENT
    tools: Raw = ABSENT
    tool_choice: Raw = ABSENT
    response_format: Raw = ABSENT
    max_completion_tokens: Annotated[int, Meta(ge=1, le=MAX_INT)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_INT)] | None = None
    reasoning_effort: Raw = ABSENT
    include_reasoning: bool | None = None
    verbosity: Raw = ABSENT
    logprobs: bool | None = None
    top_logprobs: int | None = None
    stream_options: _StreamOptions | None = None


_Body: Any = msgspec.defstruct(
    "ChatCompletion",
    [(name, Raw, ABSENT) for name in (*AS_SENT, *UNSERVED)],
    bases=(_Own,),
    forbid_unknown_fields=True,
)


class _Called(msgspec.Struct):
    name: Raw = ABSENT
    arguments: Raw = ABSENT
    input: Raw = ABSENT


class _Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Raw = ABSENT
    refusal: Raw = ABSENT
    reasoning_content: Raw = ABSENT
    reasoning: Raw = ABSENT
    tool_calls: Raw = ABSENT
    tool_call_id: Raw = ABSENT
    name: Raw = ABSENT
    function_call: Raw = ABSENT
    audio: Raw = ABSENT


class _Call(msgspec.Struct):
    id: Raw = ABSENT
    type: Literal["function", "custom"] = "function"
    function: _Called | None = None
    custom: _Called | None = None


class _Image(msgspec.Struct):
    url: Raw = ABSENT
    detail: Raw = ABSENT


class _Part(msgspec.Struct):
    type: str
    text: Raw = ABSENT
    image_url: _Image | None = None
    file: Raw = ABSENT


class _Nested(msgspec.Struct, forbid_unknown_fields=True):
    """A tool, a choice or a format, which has its members in one that is called like its type."""

    type: str | None = None
    function: Raw = ABSENT
    custom: Raw = ABSENT
    json_schema: Raw = ABSENT
    allowed_tools: Raw = ABSENT


class _Allowed(msgspec.Struct, forbid_unknown_fields=True):
    mode: Raw = ABSENT
    tools: Raw = ABSENT


class _Tool(msgspec.Struct):
    name: Any = None
    format: Raw = ABSENT


class _CustomFormat(msgspec.Struct):
    type: str | None = None
    grammar: Raw = ABSENT


# --- names ---

Renamed = Mapping[str, str]
"""Members of an item, and their names in a message or a call."""

_SAME: Renamed = {}
_CALL: Renamed = {"call_id": "id", "name": "function.name", "arguments": "function.arguments"}
_FUNCTION_CALL: Renamed = {"name": "name", "arguments": "arguments"}
_CUSTOM_CALL: Renamed = {"call_id": "id", "name": "custom.name", "input": "custom.input"}
_OUTPUT: Renamed = {"call_id": "tool_call_id", "output": "content"}

_ITEM = re.compile(r"input\[(\d+)\](?:\.([a-z_]+))?(.*)", re.DOTALL)
_ITEM_TOLD = re.compile(r"input\[\d+\](?:\.[a-z_]+|\[\d+\])*")
_NUMBER = re.compile(r"\d+")
Rule = tuple[re.Pattern[str], str]
"""Parameters of a create request, and what they are called elsewhere."""


def rules(*pairs: tuple[str, str]) -> tuple[Rule, ...]:
    """Rules for parameters, or for their beginnings, that match an expression."""
    return tuple((re.compile(rf"(?:{ours})(?=[.\[]|\Z)"), name) for ours, name in pairs)


_INSIDE = rules((r"\.(file_data|file_id|filename)", r".file.\1"))
_RULES = rules(
    (r"text\.format\.(name|description|schema|strict)", r"response_format.json_schema.\1"),
    (r"text\.format", "response_format"),
    (r"text\.verbosity", "verbosity"),
    (r"reasoning\.effort", "reasoning_effort"),
    (r"(tools\[\d+\])\.format\.(syntax|definition)", r"\1.custom.format.grammar.\2"),
    (r"(tools\[\d+\])\.format", r"\1.custom.format"),
    (r"(tools\[\d+\])\.(?!type)([^.\[]+)", r"\1.function.\2"),
    (r"tool_choice\.name", "tool_choice.function.name"),
    (r"tool_choice\.tools(\[\d+\])\.name", r"tool_choice.allowed_tools.tools\1.function.name"),
    (r"tool_choice\.(tools|mode)", r"tool_choice.allowed_tools.\1"),
    (r"include", "logprobs"),
    (r"input|instructions|previous_response_id", "messages"),
)


class Place(NamedTuple):
    """The place of an item in a request, the names of its members there, and how many parts come before its own."""

    where: str
    renamed: Renamed = _SAME
    before: int = 0


class ParameterNames(NamedTuple):
    """The names that a request's own parameters have, by those of the create request that it became."""

    items: Sequence[Place]
    """The places of the items of the input."""
    rules: Sequence[Rule]
    limit: str
    """The member that bounds the answer."""
    inside: Sequence[Rule]
    """The rules for members of a part."""

    def rename(self, refusal: ApiError) -> None:
        """Have a refusal name a parameter as the client knows it."""
        param = refusal.param
        if param is None or (name := self.name_of(param)) == param:
            return
        refusal.param = name
        told = refusal.message.replace(f"'{param}'", f"'{name}'")
        refusal.message = _ITEM_TOLD.sub(lambda item: self.name_of(item[0]), told)

    def name_of(self, param: str) -> str:
        """The name of a parameter."""
        if (found := _ITEM.fullmatch(param)) and int(found[1]) < len(self.items):
            place = self.items[int(found[1])]
            member = f".{place.renamed.get(found[2], found[2])}" if found[2] else ""
            rest = _NUMBER.sub(lambda number: str(int(number[0]) + place.before), found[3], 1)
            for rule, name in self.inside:
                rest = rule.sub(name, rest)
            return place.where + member + rest
        if param == "max_output_tokens":
            return self.limit
        for rule, name in self.rules:
            if match := rule.match(param):
                return match.expand(name) + param[match.end() :]
        return param


# --- requests ---


Thinking = Literal["shown", "omitted", "hidden"]
"""Whether reasoning is shown, or its signature alone."""


class TranslatedChat(NamedTuple):
    """A request of another API that was translated."""

    body: bytes
    """The body of the create request."""
    names: ParameterNames
    left_out: Sequence[str]
    """The kinds of what isn't in it."""
    thinking: Thinking
    usage: bool = False
    """Whether a stream of chunks tells the usage."""
    tools_left_out: Sequence[str] = ()


class ChatLimits(NamedTuple):
    """The most messages and tools of a request, and the most bytes of its tools; and whether what can't be read of a
    history is refused.
    """

    messages: int
    tools: int
    tools_bytes: int
    refuses: bool = False


def limits_of(settings: CoreSettings) -> ChatLimits:
    """The limits of a request to this service."""
    return ChatLimits(MAX_ITEMS, MAX_TOOLS, MAX_TOOLS_BYTES, refuses=settings.picture_bounds is None)


def read_chat(body: bytes, limits: ChatLimits) -> Generator[None, None, TranslatedChat]:
    """Read the body of a request, yielding now and then. Raises InvalidRequest."""
    sent: _Own = decode(body, _Body)
    if len(body) > BYTES_A_STEP:
        yield
    refuse_unserved(sent, UNSERVED)
    translation = _Messages()
    yield from translation.take(sent.messages, limits)
    wanted = _settings(sent, limits)
    options = sent.stream_options or _StreamOptions()
    if sent.stream_options is not None:
        wanted["stream_options"] = {"include_obfuscation": options.include_obfuscation}
    limit = "max_completion_tokens" if sent.max_tokens is None else "max_tokens"
    written = yield from translation.as_json(sent, AS_SENT, wanted)
    names = ParameterNames(translation.places, _RULES, limit, _INSIDE)
    thinking = "hidden" if sent.include_reasoning is False else "shown"
    return TranslatedChat(written, names, tuple(translation.left_out), thinking, bool(options.include_usage))


def refuse_unserved(sent: object, unserved: Mapping[str, tuple[bytes, str]], where: str = "") -> None:
    """Raise InvalidRequest for a member that isn't served, and would change something."""
    for name, (harmless, advice) in unserved.items():
        value: Raw = getattr(sent, name)
        if value != ABSENT and bytes(memoryview(value)[: len(harmless) + 1]) != harmless:
            raise not_served(where + name, shown_raw(value), advice)


def read_tools(raw: Raw, limits: ChatLimits, read: Callable[[Raw, str], T]) -> list[T]:
    """The tools of a request, each by a function that reads one. Raises InvalidRequest."""
    check_bytes(len(memoryview(raw)), limits.tools_bytes)
    return [read(tool, f"tools[{place}]") for place, tool in enumerate(decode_list(raw, limits.tools, "tools"))]


def _settings(sent: _Own, limits: ChatLimits) -> Json:
    """The members of a create request that have another form here. Raises InvalidRequest."""
    wanted: Json = {}
    if sent.max_tokens is not None and sent.max_completion_tokens is not None:
        raise invalid_value("max_tokens", "given with max_completion_tokens", "Send one of the two.")
    if sent.top_logprobs and not sent.logprobs:
        raise invalid_value("top_logprobs", "given without logprobs", "It is only allowed with 'logprobs': true.")
    if sent.logprobs:
        wanted |= {"include": ["message.output_text.logprobs"], "top_logprobs": sent.top_logprobs}
    if limit := sent.max_completion_tokens or sent.max_tokens:
        wanted["max_output_tokens"] = limit
    if sent.reasoning_effort != ABSENT:
        wanted["reasoning"] = {"effort": sent.reasoning_effort}
    if sent.tools != ABSENT:
        wanted["tools"] = read_tools(sent.tools, limits, _tool)
    if sent.tool_choice != ABSENT:
        wanted["tool_choice"] = _choice(sent.tool_choice)
    text = {"verbosity": sent.verbosity} if sent.verbosity != ABSENT else {}
    if sent.response_format != ABSENT:
        text["format"] = _format(sent.response_format)
    return wanted | {"text": text} if text else wanted


def _flat(raw: Raw, kind: str, where: str) -> Raw:
    """An object's JSON with its type, which nothing in it can change: the last member of a name counts."""
    if raw == ABSENT:
        raise missing(where, f"It has the members of the type '{kind}'.")
    written = bytes(raw)
    if not written.startswith(b"{"):
        decode(raw, Json, where)
    comma = b"," if written[1:-1].strip() else b""
    return Raw(b'%b%b"type":"%b"}' % (written[:-1], comma, kind.encode()))


def _tool(raw: Raw, where: str) -> Raw:
    tool = decode(raw, _Nested, where)
    if tool.type is None:
        raise missing(f"{where}.type", _OWN_TOOLS)
    if tool.type not in ("function", "custom"):
        raise not_served(f"{where}.type", tool.type, _OWN_TOOLS)
    at = f"{where}.{tool.type}"
    flat = _flat(tool.function if tool.type == "function" else tool.custom, tool.type, at)
    inside = decode(flat, _Tool, at)
    if isinstance(inside.name, str) and len(inside.name) > MAX_TOOL_NAME_CHARS:
        raise invalid_value(f"{at}.name", inside.name, f"It has at most {MAX_TOOL_NAME_CHARS} characters.")
    if tool.type == "function" or inside.format == ABSENT:
        return flat
    form = inside.format
    given = decode(form, _CustomFormat, f"{at}.format")
    if given.type == "grammar":
        form = _flat(given.grammar, "grammar", f"{at}.format.grammar")
    return Raw(b'%b,"format":%b}' % (bytes(flat)[:-1], bytes(form)))


def _choice(raw: Raw) -> Raw | Json:
    if bytes(memoryview(raw)[:1]) != b"{":
        return raw
    where = "tool_choice"
    choice = decode(raw, _Nested, where)
    if choice.type != "allowed_tools":
        return _named_tool(choice, where)
    allowed = decode(choice.allowed_tools, _Allowed, f"{where}.allowed_tools")
    at = f"{where}.allowed_tools.tools"
    tools = enumerate(decode_list(allowed.tools, MAX_CALLS, at))
    named = [_named_tool(decode(tool, _Nested, f"{at}[{place}]"), f"{at}[{place}]") for place, tool in tools]
    mode = {} if allowed.mode == ABSENT else {"mode": allowed.mode}
    return {"type": "allowed_tools", "tools": named} | mode


def _named_tool(choice: _Nested, where: str) -> Raw:
    """A tool that a choice names."""
    if choice.type not in ("function", "custom"):
        raise invalid_value(f"{where}.type", choice.type, "Give 'function', 'custom' or 'allowed_tools'.")
    inside = choice.function if choice.type == "function" else choice.custom
    return _flat(inside, choice.type, f"{where}.{choice.type}")


def _format(raw: Raw) -> Raw:
    where = "response_format"
    if bytes(memoryview(raw)[:1]) != b"{":
        decode(raw, Json, where)
    given = decode(raw, _Nested, where)
    return raw if given.type != "json_schema" else _flat(given.json_schema, given.type, f"{where}.json_schema")


class Translation:
    """The items and the instructions that messages become, of a kind that `kind` decodes."""

    kind: ClassVar[Any]

    def __init__(self) -> None:
        self.items: list[bytes] = []
        self.places: list[Place] = []
        self.instructions: list[str] = []
        self.left_out = LeftOut()
        self.replays = self.leaves_parts = self.leaves_lines = False
        """Whether the message is of a history, so that it is left out where it can't be read; the same of its parts;
        and whether a line stands for a part, as somebody else than the model or an operator has said it.
        """
        self._lost: set[bytes] = set()
        """The ids, as JSON, of calls that are left out: their outputs are as well."""
        self._read = self._most = 0

    def as_json(self, sent: object, as_sent: Iterable[str], wanted: Json) -> Generator[None, None, bytes]:
        """The body of a create request, with these members as they were sent, and others as they are `wanted`."""
        items = b",".join(self.items)
        if len(items) > BYTES_A_STEP:
            yield
        members: Json = {"instructions": APART.join(self.instructions) or None}
        members |= {name: value for name in as_sent if (value := getattr(sent, name)) != ABSENT}
        return b'%b,"input":[%b]}' % (msgspec.json.encode(members | wanted)[:-1], items)

    def take(self, raw: Raw, limits: ChatLimits) -> Generator[None, None, None]:
        """Take the messages, yielding now and then: at most so many, of which as many items may come. Raises
        InvalidRequest, naming the message.
        """
        messages, self._most = decode_list(raw, limits.messages, "messages"), limits.messages
        if not messages:
            raise missing("messages", "Give at least one message.")
        if len(memoryview(raw)) > BYTES_A_STEP:
            yield
        leading, new = True, NewPart(0, False) if limits.refuses else (yield from new_in(messages))
        for place, message in enumerate(messages):
            where = f"messages[{place}]"
            self.replays = place < new.first
            self.leaves_parts = self.replays or new.answered
            before = len(self.items)
            with self.leaving_out(message):
                sent = decode(message, self.kind, where)
                self.leaves_lines = sent.role in ("user", "tool", "function")
                if len(memoryview(message)) > BYTES_A_STEP:
                    yield
                leading = leading and sent.role in ("system", "developer") and place < len(messages) - 1
                if leading:
                    self.instructions.append("".join((yield from self.words(sent.content, f"{where}.content"))))
                else:
                    yield from self.message(sent, where)
            if len(self.items) <= before and peek(message).role == "assistant":  # the place of its turn stays known
                self.add(Place(where), _NOTHING_SAID)
            if self.had_enough(message):
                yield

    @contextmanager
    def leaving_out(self, raw: Raw) -> Generator[None]:
        """Leave a message, a block or a call of a history out where it can't be read. Raises InvalidRequest."""
        try:
            yield
        except InvalidRequest as refusal:
            if not self.replays or refusal.param == "messages":
                raise
            seen = peek(raw)
            self.left_out.add(seen.kind)
            self._lost.add(seen.call)

    def part_or_line(self, raw: Raw, where: str, read: Callable[[Raw, str], bytes]) -> bytes:
        """The JSON of a part, or the line that stands for one which can't be read. Raises InvalidRequest."""
        try:
            return read(raw, where)
        except InvalidRequest:
            if not self.leaves_parts:
                raise
        kind = kind_of(raw)
        self.left_out.add(kind)
        return msgspec.json.encode({"type": "text", "text": in_place_of(kind)}) if self.leaves_lines else b""

    def message(self, sent: Any, where: str) -> Generator[None, None, None]:
        """Take a message, yielding now and then. Raises InvalidRequest."""
        raise NotImplementedError

    def had_enough(self, raw: Raw) -> bool:
        """Whether others may run, now that this was read as well."""
        self._read += max(len(memoryview(raw)), BYTES_A_STEP // MESSAGES_A_STEP)
        if enough := self._read >= BYTES_A_STEP:
            self._read = 0
        return enough

    def content(self, raw: Raw, where: str, part: Callable[[Raw, str], bytes]) -> Generator[None, None, bytes]:
        """The JSON of a content in the form of an item's, each part by a function for one. A text stays as it came."""
        if bytes(memoryview(raw)[:1]) != b"[":
            return bytes(raw)
        parts: list[bytes] = []
        for place, each in enumerate(decode_list(raw, MAX_PARTS, where)):
            parts.append(self.part_or_line(each, f"{where}[{place}]", part))
            if self.had_enough(each):
                yield
        return b"[%b]" % b",".join(filter(None, parts))

    def words(self, raw: Raw, where: str) -> Generator[None, None, list[str]]:
        """The texts of an instruction. Raises InvalidRequest."""
        if bytes(memoryview(raw)[:1]) != b"[":
            return [without_billing(decode(raw, str, where))]
        texts: list[str] = []
        for place, each in enumerate(decode_list(raw, MAX_PARTS, where)):
            try:
                part = decode(each, _Part, f"{where}[{place}]")
                if part.type != "text":
                    raise not_served(f"{where}[{place}].type", part.type, TEXT_ONLY)
                sent = decode(part.text, str, f"{where}[{place}].text")
            except InvalidRequest:
                if not self.leaves_parts:
                    raise
                self.left_out.add(kind_of(each))
                continue
            if (text := without_billing(sent)) or not sent:
                texts.append(text)
            if self.had_enough(each):
                yield
        return texts

    def add(self, place: Place, item: bytes) -> None:
        """Add an item. Raises InvalidRequest where there are too many."""
        if len(self.items) == self._most:
            advice = f"A message has an item for each call, output, thought and text; at most {self._most} are allowed."
            raise invalid_value("messages", f"too many items, at '{place.where}'", advice)
        self.places.append(place)
        self.items.append(item)

    def call(self, place: Place, id: bytes, name: bytes, arguments: bytes) -> None:
        """Add a call of a function, by the JSON of its members."""
        self.add(place, b'{"type":"function_call","call_id":%b,"name":%b,"arguments":%b}' % (id, name, arguments))

    def output(self, place: Place, id: bytes, content: bytes) -> None:
        """Add the output of a call, by the JSON of its members; that of one which is left out is as well."""
        if id in self._lost:
            self.left_out.add("tool_result")
            return
        self.add(place, b'{"type":"function_call_output","call_id":%b,"output":%b}' % (id, content))

    def say(self, place: Place, role: bytes, content: bytes, phase: bytes = b"") -> None:
        """Add a message, by the JSON of its content."""
        phase = phase and b',"phase":"%b"' % phase
        self.add(place, b'{"type":"message","role":"%b","content":%b%b}' % (role, content, phase))


class _Messages(Translation):
    kind = _Message

    def __init__(self) -> None:
        super().__init__()
        self._functions: dict[bytes, bytes] = {}
        """The ids that calls get which come without any, by the names of their functions, which answer next."""

    def message(self, sent: _Message, where: str) -> Generator[None, None, None]:
        """See Translation."""
        content = yield from self.content(sent.content, f"{where}.content", _part)
        if sent.role == "assistant":
            self._assistant(sent, content, where)
            return
        if sent.role == "function":
            if (id := self._functions.pop(bytes(sent.name), None)) is None:
                raise invalid_value(f"{where}.name", shown_raw(sent.name), "Name the function of the call before it.")
            self.output(Place(where, _OUTPUT), id, content)
            return
        if sent.role == "tool":
            if sent.tool_call_id == ABSENT:
                raise missing(f"{where}.tool_call_id", "Name the answered call.")
            self.output(Place(where, _OUTPUT), bytes(sent.tool_call_id), content)
            return
        self.say(Place(where), b"user" if sent.role == "user" else b"developer", content)

    def _assistant(self, sent: _Message, content: bytes, where: str) -> None:
        """The model's own: its reasoning, its words and its calls, in this order. An empty text is no item."""
        if sent.audio != ABSENT:
            if not self.replays:
                raise not_served(f"{where}.audio", shown_raw(sent.audio), "Send texts and 'tool_calls'.")
            self.left_out.add("audio")
        for member in ("reasoning_content", "reasoning"):
            thought = bytes(getattr(sent, member))
            if thought.startswith(b'"') and thought != b'""':
                part = b'[{"type":"reasoning_text","text":%b}]' % thought
                item = b'{"type":"reasoning","summary":[],"content":%b}' % part
                self.add(Place(where, {"content": member}), item)
                break
        try:
            calls = decode_list(sent.tool_calls, MAX_CALLS, f"{where}.tool_calls")
        except InvalidRequest:
            if not self.replays:
                raise
            self.left_out.add("tool_calls")
            calls = []
        if content in _EMPTY and bytes(sent.refusal) not in _EMPTY:
            content = b'[{"type":"refusal","refusal":%b}]' % bytes(sent.refusal)
        if content not in _EMPTY:
            self.say(Place(where), b"assistant", content, b"commentary" if calls else b"")
        for place, raw in enumerate(calls):
            with self.leaving_out(raw):
                self._call(raw, f"{where}.tool_calls[{place}]")
        if sent.function_call != ABSENT:
            with self.leaving_out(sent.function_call):
                at = f"{where}.function_call"
                called = decode(sent.function_call, _Called, at)
                self._functions[bytes(called.name)] = id = b'"call_%d"' % len(self.items)
                self.call(Place(at, _FUNCTION_CALL), id, bytes(called.name), bytes(called.arguments))

    def _call(self, raw: Raw, where: str) -> None:
        call = decode(raw, _Call, where)
        called = call.function if call.type == "function" else call.custom
        if called is None:
            raise missing(f"{where}.{call.type}", "It has the tool's name and arguments.")
        if call.type == "custom":
            head = b'"call_id":%b,"name":%b' % (bytes(call.id), bytes(called.name))
            item = b'{"type":"custom_tool_call",%b,"input":%b}' % (head, bytes(called.input))
            self.add(Place(where, _CUSTOM_CALL), item)
            return
        arguments = b'""' if called.arguments == ABSENT else bytes(called.arguments)
        self.call(Place(where, _CALL), bytes(call.id), bytes(called.name), arguments)


def _part(raw: Raw, where: str) -> bytes:
    part = decode(raw, _Part, where)
    if part.type in ("text", "refusal"):
        return bytes(raw)
    if part.type == "image_url":
        image = part.image_url or _Image()
        written = (bytes(image.url), bytes(image.detail))
        return b'{"type":"input_image","image_url":%b,"detail":%b}' % written
    if part.type == "file":
        return bytes(_flat(part.file, "input_file", f"{where}.file"))
    raise not_served(f"{where}.type", part.type, TEXT_ONLY)


# --- answers ---


def completion(response: Response, thinking: Thinking) -> Json:
    """The chat completion that a response is."""
    messages = [item for item in response.output if isinstance(item, Message)]
    thoughts = [part.text for item in response.output if isinstance(item, Reasoning) for part in item.content]
    calls = [written for item in response.output if (written := call_of(item)) is not None]
    logprobs = [one for item in messages for part in item.content for one in part.logprobs]
    texts = ("".join(part.text for part in item.content) for item in messages)
    message: Json = {"role": "assistant", "content": APART.join(filter(None, texts)) or None, "refusal": None}
    if thinking == "shown" and any(thoughts):
        message["reasoning_content"] = APART.join(filter(None, thoughts))
    if calls:
        message["tool_calls"] = calls
    choice: Json = {
        "index": 0,
        "message": message | {"annotations": []},
        "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
        "finish_reason": finish_reason(response),
    }
    return facts_of(response, "chat.completion") | {"choices": [choice], "usage": usage_of(response)}


def facts_of(response: Response, kind: str) -> Json:
    """The members that a chat completion and each chunk of it begin with. Its id is the response's, renamed."""
    return {
        "id": f"chatcmpl-{response.id.partition('_')[2]}",
        "object": kind,
        "created": response.created_at,
        "model": response.model,
        "service_tier": response.service_tier,
        "system_fingerprint": None,
    }


def call_of(item: object) -> Json | None:
    """A call of one of the client's tools; None for any other item."""
    if isinstance(item, FunctionCall):
        called = {"name": item.name, "arguments": item.arguments}
        return {"id": item.call_id, "type": "function", "function": called}
    if isinstance(item, CustomToolCall):
        return {"id": item.call_id, "type": "custom", "custom": {"name": item.name, "input": item.input}}
    return None


def finish_reason(response: Response) -> Literal["stop", "length", "tool_calls"]:
    """Why the model ended."""
    details = response.incomplete_details
    if details is not None and details.reason == "max_output_tokens":
        return "length"
    called = any(isinstance(item, FunctionCall | CustomToolCall) for item in response.output)
    return "tool_calls" if called else "stop"


def usage_of(response: Response) -> Json | None:
    """The tokens of a response."""
    usage = response.usage
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.input_tokens_details.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.output_tokens_details.reasoning_tokens},
    }


def failure_of(response: Response) -> ApiError | None:
    """The error that a response ended in: Chat Completions shows none in an answer."""
    if response.status not in (ResponseStatus.FAILED, ResponseStatus.CANCELLED):
        return None
    error = response.error
    message = "The response was cancelled." if error is None else error.message
    return ApiError(500, message, type="server_error", code=None if error is None else error.code)
