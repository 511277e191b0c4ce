"""The conversation that a request with its whole history continues, recognised by what it says.

    speaker, items ─▶ visible ones ─▶ a digest after each ─▶ those at ends of turns ─▶ store ─▶ parent, and the rest

The visible transcript is what a client of any protocol shows: texts of messages, calls as names and arguments, outputs
as texts. Reasoning and calls that ran here aren't in it. A digest rolls over it from a secret of the tenant's, the user
and the instructions, so nobody else can make one, and a turn is stored with the digest after its last item. A match
is never fuzzy: an edited history matches up to its edit, and a shortened one matches nothing. Never log a text here.

Words alone prove nothing, as anybody can say them: so of several turns with the same words none is found, only a user
whom the request names finds a turn that was continued before, and a turn in which its client gave calls or thoughts as
ones that were made here has no digest, but for thoughts that were sealed here.
"""

import re
from collections import deque
from collections.abc import Generator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec import Raw

from service.api.content import MAX_PARTS
from service.api.items import BYTES_A_STEP
from service.api.read import ITEMS_A_STEP, READERS, message_of
from service.api.request import CreateRequest
from service.api.response import CustomToolCall, FunctionCall, Message
from service.decoding import ABSENT, decode_list
from service.errors import InvalidRequest
from service.features.chats.chat import APART
from service.responses.output.sealed import Unsealable, open_reasoning
from service.responses.prompt.read import MAX_ITEMS
from service.responses.seal import Sealer
from service.responses.seen import Seen
from service.steps import in_one_go
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
_MEMBERS = ("image_url", "detail", "file_id", "file_url", "file_data", "filename")
_UNSAID = b'detail:"auto"'
_NOTHING = (b"null", b"[]", b'""')

PIECE_BYTES = 1_048_576
"""The bytes that are read, or added to a digest, before others get a turn: at most some 3 ms. A text whose JSON is
longer is known by that alone, which a client that sends it again writes as before.
"""

_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class Speaker(NamedTuple):
    """The user for whom a request with a whole history asks, as far as it says so, and by which instructions."""

    key: str
    """The id of the key that asks, empty where the registry has none."""
    names: tuple[str, ...]
    """The names of the user that the request has, and its front end's header; empty ones where nobody is named."""
    cache_key: str
    instructions: str


class _Item(msgspec.Struct):
    type: str | None = None
    role: str | None = None
    content: Raw = ABSENT
    call_id: str = ""
    namespace: str | None = None
    name: str = ""
    arguments: Raw = ABSENT
    input: Raw = ABSENT
    output: Raw = ABSENT
    container_id: str | None = None
    summary: Raw = ABSENT
    encrypted_content: Raw = ABSENT


class _Part(msgspec.Struct):
    type: str = ""
    text: Raw = ABSENT
    refusal: Raw = ABSENT
    image_url: Raw = ABSENT
    detail: Raw = ABSENT
    file_id: Raw = ABSENT
    file_url: Raw = ABSENT
    file_data: Raw = ABSENT
    filename: Raw = ABSENT


class _UnseenError(Exception):
    """An item that has no visible form."""


class _Transcript:
    """A digest that rolls over visible items, in steps. Texts of the assistant's that follow each other are one."""

    def __init__(self, digest: bytes) -> None:
        self._digest, self._said = digest, list[str]()

    def say(self, text: str) -> None:
        """Add a text of the assistant's. Clients trim it, and Chat Completions joins those of one answer."""
        if text := text.strip():
            self._said.append(text)

    def add(self, kind: str, *texts: str | bytes) -> Generator[None, None, None]:
        """Add an item of any other kind."""
        self._digest = yield from _roll((yield from self.end()), kind, *texts)

    def end(self) -> Generator[None, None, bytes]:
        """The digest after all that was added. A text of the assistant's that follows is another one."""
        if self._said:
            said, self._said = APART.join(self._said), []
            self._digest = yield from _roll(self._digest, "assistant", said)
        return self._digest


class _Calls:
    """The places of calls among the calls, by the ids that a client has for them, which it may use again."""

    def __init__(self) -> None:
        self._made, self._waiting = 0, dict[str, deque[int]]()

    def note(self, id: str) -> None:
        """Note a call. Raises _UnseenError for one without an id."""
        if not id:
            raise _UnseenError
        self._waiting.setdefault(id, deque()).append(self._made)
        self._made += 1

    def answer(self, id: str) -> int:
        """The place of the first call with this id that has no output yet, which it has now. Raises _UnseenError."""
        if not (places := self._waiting.get(id)):
            raise _UnseenError
        return places.popleft()

    def refuse_open(self) -> None:
        """Raise _UnseenError if a call has no output: its refusal has the id that the client knows."""
        if any(self._waiting.values()):
            raise _UnseenError


def see(opener: Sealer, request: CreateRequest, key: str, user: str) -> Generator[None, None, Seen | None]:
    """The words of a request, by the id of its key and the name that a front end's header has."""
    return seen_of(opener, speaker_of(request, key, user), request.input)


def speaker_of(request: CreateRequest, key: str, user: str) -> Speaker:
    """The user for whom a request asks, by the id of its key and the name that a front end's header has."""
    names = (user, request.safety_identifier or "", request.user or "")
    return Speaker(key, names, request.prompt_cache_key or "", request.instructions or "")


def seen_of(opener: Sealer, speaker: Speaker, raw: Raw) -> Generator[None, None, Seen | None]:
    """The visible transcript of an input, yielding now and then; None for one with an item that has no visible form, or
    that is refused when it is read.
    """
    secret = blake2b(opener.seal("transcript", b"").encode(), digest_size=SAID_BYTES).digest()
    begun = yield from _roll(secret, speaker.key, *speaker.names, speaker.cache_key, speaker.instructions)
    transcript = _Transcript(begun)
    try:
        one = bytes(memoryview(raw)[:1]) == b'"'
        items = [Raw(message_of(bytes(raw)))] if one else decode_list(raw, MAX_ITEMS, "input")
        if len(memoryview(raw)) > PIECE_BYTES:
            yield
        ends: list[tuple[bytes, int]] = []
        calls = _Calls()
        answered: dict[int, int] = {}
        beginning, models, read = b"", False, 0
        claims, containers = -1, set[str]()
        for place, item in enumerate(items):
            read += len(memoryview(item))
            if place % ITEMS_A_STEP == ITEMS_A_STEP - 1 or read > BYTES_A_STEP:
                read = 0
                yield
            sent = _decode(item)
            if sent.type in INVISIBLE:
                claims = claims if sent.type == "reasoning" and _is_sealed(sent, opener) else place
                if sent.container_id:
                    containers.add(sent.container_id)
                continue
            speaks = _speaks(sent)
            if speaks and not models:
                beginning = beginning or (yield from transcript.end())
            elif models and not speaks:
                ends.append(((yield from transcript.end()), place))
            models = speaks
            if sent.type in OUTPUTS:
                answered[place] = calls.answer(sent.call_id)
                yield from transcript.add("output", str(answered[place]), *(yield from _texts(sent.output)))
            else:
                yield from _add(transcript, sent, item, calls)
        calls.refuse_open()
        said = yield from transcript.end()
    except (_UnseenError, InvalidRequest, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    last, is_named = ends[: -MOST_DIGESTS - 1 : -1], any(speaker.names)
    return Seen(said, (beginning or said).hex(), last, items, answered, claims, frozenset(containers), is_named)


def digest_after(said: bytes, output: Sequence[msgspec.Struct]) -> bytes:
    """The digest of a transcript once a response with this output has ended; empty where an item has no visible form,
    or nothing was said. A call that was cut short isn't in the chain, so it isn't here.
    """
    return in_one_go(_after(_Transcript(said), output))


def _after(transcript: _Transcript, output: Sequence[msgspec.Struct]) -> Generator[None, None, bytes]:
    says = False
    for item in output:
        if isinstance(item, Message):
            text = "".join(part.text for part in item.content)
            says = says or bool(text)
            transcript.say(text)
        elif isinstance(item, FunctionCall | CustomToolCall):
            if item.status != "completed":
                continue
            if isinstance(item, FunctionCall):
                yield from transcript.add("function_call", _name(item), _arguments(item.arguments))
            else:
                yield from transcript.add("custom_tool_call", _name(item), item.input)
            says = True
        elif item.__struct_config__.tag not in INVISIBLE:
            return b""
    return (yield from transcript.end()) if says else b""


_decode = msgspec.json.Decoder(_Item).decode


def _is_sealed(thought: _Item, opener: Sealer) -> bool:
    """Whether nothing but what was sealed here is shown of a thought: a summary is where a seal can't be opened."""
    content, summary, seal = map(_is_given, (thought.content, thought.summary, thought.encrypted_content))
    if not content and not (summary and seal):
        return True
    try:
        open_reasoning(_string.decode(thought.encrypted_content), opener)
    except (Unsealable, msgspec.DecodeError):
        return False
    return True


def _is_given(raw: Raw) -> bool:
    return bytes(memoryview(raw)[:5]) not in _NOTHING


def _speaks(item: _Item) -> bool:
    """Whether the model has made it."""
    if item.type in ("function_call", "custom_tool_call"):
        return True
    return item.type in (None, "message") and item.role == "assistant"


def _add(transcript: _Transcript, item: _Item, raw: Raw, calls: _Calls) -> Generator[None, None, None]:
    """Add an item that is no output, in steps. One that is left out of the prompt, or that nobody but its sender knows
    the form of, is its JSON.
    """
    kind = item.type or "message"
    if kind == "message" and item.role == "assistant":
        *others, text = yield from _texts(item.content)
        if others or isinstance(text, bytes):
            raise _UnseenError
        transcript.say(text)
    elif kind == "message" and item.role is not None:
        yield from transcript.add(item.role, *(yield from _texts(item.content)))
    elif kind == "function_call":
        calls.note(item.call_id)
        yield from transcript.add(kind, _name(item), _arguments(_text(item.arguments)))
    elif kind == "custom_tool_call":
        calls.note(item.call_id)
        yield from transcript.add(kind, _name(item), _text(item.input))
    elif kind not in READERS or kind == "agent_message":
        yield from transcript.add(kind, bytes(raw))
    else:
        raise _UnseenError


def _texts(content: Raw) -> Generator[None, None, list[str | bytes]]:
    """The texts before images, files and long texts in a content with the form of each, and the text behind them, parts
    joined; in steps. Raises InvalidRequest for more parts than are read.
    """
    if bytes(memoryview(content)[:1]) == b'"':
        text = _text(content)
        return [text] if isinstance(text, str) else ["", text, ""]
    joined: list[str | bytes] = []
    said: list[str] = []
    read = 0
    for raw in decode_list(content, MAX_PARTS, "content"):
        read += len(memoryview(raw))
        if read > PIECE_BYTES:
            read = 0
            yield
        part = _part.decode(raw)
        if part.type in _TEXTS or part.type == "refusal":
            form = _text(part.refusal if part.type == "refusal" else part.text)
        else:
            form = _other(part) if part.type in _OTHERS else bytes(raw)
        if isinstance(form, str):
            said.append(form)
        else:
            joined += ["".join(said), form]
            said = []
    return [*joined, "".join(said)]


def _other(part: _Part) -> bytes:
    """The form of an image or a file, which is one for the clients of all APIs: its members in one order, without
    those that say nothing.
    """
    said = [b"%b:%b" % (name.encode(), bytes(raw)) for name in _MEMBERS if (raw := getattr(part, name)) != ABSENT]
    return b",".join((part.type.encode(), *(each for each in said if each != _UNSAID)))


def _text(raw: Raw) -> str | bytes:
    """A text, none for null; the JSON of a long one."""
    if raw == ABSENT:
        return ""
    return _string.decode(raw) if len(memoryview(raw)) <= PIECE_BYTES else bytes(raw)


_string = msgspec.json.Decoder(str)
_part = msgspec.json.Decoder(_Part)


def _name(call: _Item | FunctionCall | CustomToolCall) -> str:
    return f"{call.namespace}.{call.name}" if call.namespace else call.name


def _arguments(text: str | bytes) -> bytes:
    """Arguments as a client may write them again that has read them: without white space and without needless escapes,
    members and numbers as they were. Those of more than BYTES_A_STEP keep their escapes.
    """
    if isinstance(text, bytes):
        return text
    try:
        packed = msgspec.json.format(text.encode() or b"{}", indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return text.encode()
    if b"\\" not in packed or len(packed) > BYTES_A_STEP:
        return packed
    return _STRING.sub(lambda found: _plain(found[0]), packed.decode()).encode(errors="surrogatepass")


def _plain(string: str) -> str:
    return msgspec.json.encode(_string.decode(string)).decode()


def _roll(digest: bytes, kind: str, *texts: str | bytes) -> Generator[None, None, bytes]:
    """The digest after one item more, in steps. Each text has its length before it."""
    rolled = blake2b(digest, digest_size=SAID_BYTES)
    for text in (kind, *texts):
        written = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
        rolled.update(b"%d:" % len(written))
        if len(written) <= PIECE_BYTES:
            rolled.update(written)
            continue
        for at in range(0, len(written), PIECE_BYTES):
            yield
            rolled.update(memoryview(written)[at : at + PIECE_BYTES])
    return rolled.digest()
