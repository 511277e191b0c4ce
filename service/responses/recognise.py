"""The conversation that a request with its whole history continues, recognised by what it says.

    items ─▶ visible ones ─▶ a digest after each ─▶ those at ends of turns ─▶ the store ─▶ parent, and the rest

The visible transcript is what a client of any protocol shows: texts of messages, calls as names and arguments, outputs
as texts. Reasoning and calls that ran here aren't in it, and neither are the instructions. A digest rolls over it from
a secret of the tenant's, so nobody else can make one, and a turn is stored with the digest after its last item. A match
is never fuzzy: an edited history matches up to its edit, and a shortened one matches nothing. Never log a text here.
"""

import re
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec import Raw

from service.api.chat import APART
from service.api.content import MAX_PARTS
from service.api.items import BYTES_A_STEP
from service.api.read import ITEMS_A_STEP, message_of
from service.api.request import CreateRequest
from service.api.response import CustomToolCall, FunctionCall, Message
from service.decoding import ABSENT, decode_list
from service.errors import InvalidRequest
from service.responses.prompt.read import MAX_ITEMS
from service.responses.seal import Sealer
from store.history.history import MOST_DIGESTS
from store.turn import SAID_BYTES

INVISIBLE = frozenset(
    {
        *("reasoning", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("mcp_call", "mcp_list_tools"),
    }
)
"""The kinds of items that only the Responses API shows; the chain that is continued has them."""

OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})

_TEXTS = frozenset({"input_text", "output_text", "text"})
_OTHERS = frozenset({"input_image", "input_file"})
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


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
        self._digest, self._said = digest, list[str]()

    def say(self, text: str) -> None:
        """Add a text of the assistant's. Clients trim it, and Chat Completions joins those of one answer."""
        if text := text.strip():
            self._said.append(text)

    def add(self, kind: str, *texts: str | bytes) -> None:
        """Add an item of any other kind."""
        self._digest = _roll(self.end(), kind, *texts)

    def end(self) -> bytes:
        """The digest after all that was added. A text of the assistant's that follows is another one."""
        if self._said:
            self._digest, self._said = _roll(self._digest, "assistant", APART.join(self._said)), []
        return self._digest


class _Calls:
    """The places of calls among the calls, by the ids that a client has for them, which it may use again."""

    def __init__(self) -> None:
        self._made, self._waiting = 0, dict[str, deque[int]]()

    def note(self, id: str) -> None:
        """Note a call."""
        self._waiting.setdefault(id, deque()).append(self._made)
        self._made += 1

    def answer(self, id: str) -> int:
        """The place of the first call with this id that has no output yet, which it has now. Raises _UnseenError."""
        if not (places := self._waiting.get(id)):
            raise _UnseenError
        return places.popleft()


def recognises(request: CreateRequest) -> bool:
    """Whether a request may bring its whole history: it names nothing that it continues, and no template."""
    named = (request.previous_response_id, request.conversation, request.prompt, request.continuation_id)
    return not any(named) and request.previous_input_messages == ABSENT and request.generate


def seen_of(opener: Sealer, raw: Raw) -> Generator[None, None, Seen | None]:
    """The visible transcript of an input, yielding now and then; None for one with an item that has no visible form, or
    that is refused when it is read.
    """
    transcript = _Transcript(blake2b(opener.seal("transcript", b"").encode(), digest_size=SAID_BYTES).digest())
    try:
        one = bytes(memoryview(raw)[:1]) == b'"'
        items = [Raw(message_of(bytes(raw)))] if one else decode_list(raw, MAX_ITEMS, "input")
        ends: list[tuple[bytes, int]] = []
        calls = _Calls()
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
            if sent.type in OUTPUTS:
                answered[place] = calls.answer(sent.call_id)
                others, text = _texts(sent.output)
                transcript.add("output", str(answered[place]), *others, text)
            else:
                _add(transcript, sent, calls)
    except (_UnseenError, InvalidRequest):
        return None
    said = transcript.end()
    return Seen(said, (beginning or said).hex(), ends[: -MOST_DIGESTS - 1 : -1], items, answered)


def digest_after(said: bytes, output: Sequence[msgspec.Struct]) -> bytes:
    """The digest of a transcript once a response with this output has ended; empty where an item has no visible form,
    or nothing was said. A call that was cut short isn't in the chain, so it isn't here.
    """
    transcript, says = _Transcript(said), False
    for item in output:
        if isinstance(item, Message):
            text = "".join(part.text for part in item.content)
            says = says or bool(text)
            transcript.say(text)
        elif isinstance(item, FunctionCall | CustomToolCall):
            if item.status != "completed":
                continue
            if isinstance(item, FunctionCall):
                transcript.add("function_call", _name(item), _arguments(item.arguments))
            else:
                transcript.add("custom_tool_call", _name(item), item.input)
            says = True
        elif item.__struct_config__.tag not in INVISIBLE:
            return b""
    return transcript.end() if says else b""


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


def _add(transcript: _Transcript, item: _Item, calls: _Calls) -> None:
    """Add an item that is no output."""
    kind = item.type or "message"
    if kind == "message" and item.role == "assistant":
        others, text = _texts(item.content)
        if others:
            raise _UnseenError
        transcript.say(text)
    elif kind == "message" and item.role is not None:
        others, text = _texts(item.content)
        transcript.add(item.role, *others, text)
    elif kind == "function_call":
        calls.note(item.call_id)
        transcript.add(kind, _name(item), _arguments(item.arguments))
    elif kind == "custom_tool_call":
        calls.note(item.call_id)
        transcript.add(kind, _name(item), item.input)
    else:
        raise _UnseenError


def _texts(content: Raw) -> tuple[list[str | bytes], str]:
    """The texts before images or files in a content with the JSON of each, and the text behind them, parts joined.
    Raises InvalidRequest for more parts than are read.
    """
    try:
        if bytes(memoryview(content)[:1]) == b'"':
            return [], _string.decode(content)
        joined: list[str | bytes] = []
        said: list[str] = []
        for raw in decode_list(content, MAX_PARTS, "content"):
            part = _part.decode(raw)
            if part.type in _TEXTS:
                said.append(part.text or "")
            elif part.type == "refusal":
                said.append(part.refusal or "")
            elif part.type in _OTHERS:
                joined += ["".join(said), msgspec.json.format(bytes(raw), indent=-1)]
                said = []
            else:
                raise _UnseenError
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _UnseenError from error
    return joined, "".join(said)


_string = msgspec.json.Decoder(str)
_part = msgspec.json.Decoder(_Part)


def _name(call: _Item | FunctionCall | CustomToolCall) -> str:
    return f"{call.namespace}.{call.name}" if call.namespace else call.name


def _arguments(text: str) -> bytes:
    """Arguments as a client may write them again that has read them: without white space and without needless escapes,
    members and numbers as they were. Those of more than BYTES_A_STEP keep their escapes.
    """
    try:
        packed = msgspec.json.format(text.encode() or b"{}", indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return text.encode()
    if b"\\" not in packed or len(packed) > BYTES_A_STEP:
        return packed
    return _STRING.sub(lambda found: _plain(found[0]), packed.decode()).encode(errors="surrogatepass")


def _plain(string: str) -> str:
    return msgspec.json.encode(_string.decode(string)).decode()


def _roll(digest: bytes, kind: str, *texts: str | bytes) -> bytes:
    """The digest after one item more. Each text has its length before it."""
    rolled = blake2b(digest, digest_size=SAID_BYTES)
    for text in (kind, *texts):
        written = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
        rolled.update(b"%d:" % len(written))
        rolled.update(written)
    return rolled.digest()
