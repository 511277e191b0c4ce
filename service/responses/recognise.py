"""The conversation that a request with its whole history continues, recognised by what it says.

    items ─▶ visible ones ─▶ a digest after each ─▶ those at ends of turns ─▶ the store ─▶ parent, and the rest

The visible transcript is what a client of any protocol shows: texts of messages, calls as names and arguments, outputs
as texts. Reasoning and calls that ran here aren't in it, and neither are the instructions. A digest rolls over it from
a secret of the tenant's, so nobody else can make one, and a turn is stored with the digest after its last item. A match
is never fuzzy: an edited history matches up to its edit, and a shortened one matches nothing. Never log a text here.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec import Raw

from service.api.chat import APART
from service.api.items import BYTES_A_STEP
from service.api.read import ITEMS_A_STEP
from service.api.request import CreateRequest
from service.api.response import CustomToolCall, FunctionCall, Message
from service.decoding import ABSENT, decode_list
from service.errors import InvalidRequest
from service.responses.prompt.read import MAX_ITEMS
from service.responses.seal import Sealer

DIGEST_BYTES = 32

MOST_ENDS = 64
"""The most ends of turns for which the store is asked, the last ones."""

INVISIBLE = frozenset(
    {
        *("reasoning", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("mcp_call", "mcp_list_tools"),
    }
)
"""The kinds of items that only the Responses API shows; the chain that is continued has them."""

OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})

_TEXTS = frozenset({"input_text", "output_text", "text"})
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class Seen(NamedTuple):
    """The words of a request with its whole history."""

    said: bytes
    """The digest of all of it."""
    beginning: str
    """The name of conversations that begin like this, which are in one shard."""
    ends: Sequence[tuple[bytes, int]]
    """The digest at each end of a turn of the model's, and the item with which the next one begins; the last end first.
    """
    items: Sequence[Raw]
    answered: Mapping[int, int]
    """The place among the calls of the one that an item is the output of."""

    def rest(self, place: int, calls: Sequence[str]) -> Raw:
        """The items from this one on, behind a conversation whose calls have these ids; a client may have others."""
        items = (self._item(number, calls) for number in range(place, len(self.items)))
        return Raw(b"[%b]" % b",".join(items))

    def _item(self, place: int, calls: Sequence[str]) -> bytes:
        raw, call = bytes(self.items[place]), self.answered.get(place, len(calls))
        if call >= len(calls) or _decoder.decode(raw).call_id == calls[call]:
            return raw
        return msgspec.json.encode(_members.decode(raw) | {"call_id": Raw(msgspec.json.encode(calls[call]))})


class _Item(msgspec.Struct):
    type: str | None = None
    role: str | None = None
    content: Raw = ABSENT
    call_id: str = ""
    namespace: str | None = None
    name: str = ""
    arguments: str = ""
    input: str = ""
    output: Raw = ABSENT


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _UnseenError(Exception):
    """An item that has no visible form."""


class _Transcript:
    """A digest that rolls over visible items. Texts of the assistant's that follow each other are one."""

    def __init__(self, digest: bytes) -> None:
        self._digest, self._said = digest, ""

    def say(self, text: str) -> None:
        """Add a text of the assistant's. Clients trim it, and Chat Completions joins those of one answer."""
        if text := text.strip():
            self._said += f"{APART}{text}" if self._said else text

    def add(self, kind: str, *texts: str | bytes) -> None:
        """Add an item of any other kind."""
        self._digest = self.end()
        self._said = ""
        self._digest = _roll(self._digest, kind, *texts)

    def end(self) -> bytes:
        """The digest after all that was added."""
        return _roll(self._digest, "assistant", self._said) if self._said else self._digest


def recognises(request: CreateRequest) -> bool:
    """Whether a request may bring its whole history: it names nothing that it continues, and no template."""
    named = (request.previous_response_id, request.conversation, request.prompt, request.continuation_id)
    return not any(named) and request.previous_input_messages == ABSENT and request.generate


def seen_of(opener: Sealer, raw: Raw) -> Generator[None, None, Seen | None]:
    """The visible transcript of an input, yielding now and then; None for one with an item that has no visible form, or
    that is refused when it is read.
    """
    transcript = _Transcript(blake2b(opener.seal("transcript", b"").encode(), digest_size=DIGEST_BYTES).digest())
    try:
        items = [Raw(b'{"role":"user","content":%b}' % raw)] if bytes(memoryview(raw)[:1]) == b'"' else _items_of(raw)
        ends: list[tuple[bytes, int]] = []
        calls: dict[str, int] = {}
        answered: dict[int, int] = {}
        beginning, models, read = b"", False, 0
        for place, item in enumerate(items):
            read += len(memoryview(item))
            if place % ITEMS_A_STEP == ITEMS_A_STEP - 1 or read > BYTES_A_STEP:
                read = 0
                yield
            sent = _decode(item)
            if sent.type in INVISIBLE:
                continue
            speaks = _speaks(sent)
            if speaks and not models:
                beginning = beginning or transcript.end()
            elif models and not speaks:
                ends.append((transcript.end(), place))
            models = speaks
            if sent.type in OUTPUTS and sent.call_id in calls:
                answered[place] = calls[sent.call_id]
            _add(transcript, sent, calls)
    except (_UnseenError, InvalidRequest):
        return None
    said = transcript.end()
    return Seen(said, (beginning or said).hex(), ends[: -MOST_ENDS - 1 : -1], items, answered)


def digest_after(said: bytes, output: Sequence[msgspec.Struct]) -> bytes:
    """The digest of a transcript once a response with this output has ended; empty where an item has no visible form,
    or nothing was said.
    """
    transcript, says = _Transcript(said), False
    for item in output:
        if isinstance(item, Message):
            text = "".join(part.text for part in item.content)
            says = says or bool(text)
            transcript.say(text)
        elif isinstance(item, FunctionCall):
            transcript.add("function_call", _name(item), _arguments(item.arguments))
            says = True
        elif isinstance(item, CustomToolCall):
            transcript.add("custom_tool_call", _name(item), item.input)
            says = True
        elif item.__struct_config__.tag not in INVISIBLE:
            return b""
    return transcript.end() if says else b""


def _items_of(raw: Raw) -> list[Raw]:
    return decode_list(raw, MAX_ITEMS, "input")


def _decode(item: Raw) -> _Item:
    try:
        return _decoder.decode(item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _UnseenError from error


_decoder = msgspec.json.Decoder(_Item)
_members = msgspec.json.Decoder(dict[str, Raw])


def _speaks(item: _Item) -> bool:
    """Whether the model has made it."""
    if item.type in ("function_call", "custom_tool_call"):
        return True
    return item.type in (None, "message") and item.role == "assistant"


def _add(transcript: _Transcript, item: _Item, calls: dict[str, int]) -> None:
    """Add an item. Clients have ids of their own for calls, so an output names the place of its call."""
    kind = item.type or "message"
    if kind == "message" and item.role is not None:
        if item.role == "assistant":
            transcript.say(_text(item.content))
        else:
            transcript.add(item.role, _text(item.content))
    elif kind == "function_call":
        calls[item.call_id] = len(calls)
        transcript.add(kind, _name(item), _arguments(item.arguments))
    elif kind == "custom_tool_call":
        calls[item.call_id] = len(calls)
        transcript.add(kind, _name(item), item.input)
    elif kind in OUTPUTS:
        transcript.add("output", str(calls.get(item.call_id, item.call_id)), _text(item.output))
    else:
        raise _UnseenError


def _text(content: Raw) -> str:
    """The text of a content, its parts joined; other parts as their JSON."""
    try:
        if bytes(memoryview(content)[:1]) == b'"':
            return _string.decode(content)
        if content in (ABSENT, b"null"):
            return ""
        joined = ""
        for raw in _parts.decode(content):
            part = _part.decode(raw)
            if part.type in _TEXTS:
                joined += part.text or ""
            elif part.type == "refusal":
                joined += part.refusal or ""
            else:
                joined += f"\0{msgspec.json.format(bytes(raw), indent=-1).decode()}\0"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _UnseenError from error
    return joined


_string = msgspec.json.Decoder(str)
_parts = msgspec.json.Decoder(list[Raw])
_part = msgspec.json.Decoder(_Part)


def _name(call: _Item | FunctionCall | CustomToolCall) -> str:
    return f"{call.namespace}.{call.name}" if call.namespace else call.name


def _arguments(text: str) -> bytes:
    """Arguments as a client may write them again that has read them: without white space and without needless escapes,
    members and numbers as they were.
    """
    try:
        packed = msgspec.json.format(text.encode() or b"{}", indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return text.encode()
    if b"\\" not in packed:
        return packed
    return _STRING.sub(lambda found: _plain(found[0]), packed.decode()).encode(errors="surrogatepass")


def _plain(string: str) -> str:
    return msgspec.json.encode(_string.decode(string)).decode()


def _roll(digest: bytes, kind: str, *texts: str | bytes) -> bytes:
    """The digest after one item more. Each text has its length before it."""
    rolled = blake2b(digest, digest_size=DIGEST_BYTES)
    for text in (kind, *texts):
        written = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
        rolled.update(b"%d:" % len(written))
        rolled.update(written)
    return rolled.digest()
