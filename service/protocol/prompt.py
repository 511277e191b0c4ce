"""A request and the chain that it continues, to the tokens that the engine gets and the messages that are new.

    system · developer (this request's instructions and tools) · chain · new input · <|start|>assistant

System and developer messages are made afresh for every request and never join a chain. Kept messages are joined as
they stand, so a continued prompt begins with exactly the tokens of the one before it; only analysis before the last
final answer is left out, and what was left out once never comes back on that branch, because a final never leaves
a chain. Building is a generator that yields between pieces of work, so that no prompt stalls the event loop.
"""

from array import array
from collections.abc import Generator, Iterable, Sequence

import msgspec

from service.protocol import tokens
from service.protocol.errors import InvalidRequest, context_length_exceeded
from service.protocol.input import (
    FunctionCallItem,
    FunctionCallOutputItem,
    InputItem,
    MessageItem,
    ReasoningItem,
    read_input,
)
from service.protocol.render import PROMPT_END, developer_text, message_steps, system_message
from service.protocol.tokens import TooManyTokens
from service.protocol.tools import Tools
from service.protocol.typescript import SchemaTooDeep, SchemaTooLarge
from service.protocol.wire import HARMONY_EFFORT, CreateRequest
from store.turn import StoredMessage

DEVELOPER_MESSAGES_CACHED = 64
CACHED_DEVELOPER_CHARS = 65_536
_BYTES_A_TOKEN = 4


class Identity(msgspec.Struct, frozen=True):
    """What the system message says of the model, and how long its context is, in tokens."""

    name: str
    knowledge_cutoff: str
    context_tokens: int


class Prompt(msgspec.Struct, frozen=True):
    """What the engine gets, and what the turn will add of the request: checked items and their messages."""

    tokens: "array[int]"
    items: list[InputItem]
    messages: list[StoredMessage]


def build_prompt(
    request: CreateRequest, chain: Sequence[StoredMessage], identity: Identity, *, date: str, max_items: int
) -> Generator[None, None, Prompt]:
    """Read the request's input and build its prompt, yielding between pieces of at most a few milliseconds.

    `chain` is oldest first; `date` is the request's UTC day, such as 2025-06-28. Raises InvalidRequest: for bad
    items, for call ids without a call, for calls without an output, and for a prompt that leaves no room.
    """
    items = yield from read_input(request.input, max_items=max_items)
    if not items and not chain:
        raise InvalidRequest("'input' is empty: give at least one item.", code="invalid_value", param="input")
    limit = identity.context_tokens
    calls = _calls(chain)
    new: list[StoredMessage] = []
    room = limit
    try:
        opening = yield from _opening(request, identity, date, limit)
        for place, item in enumerate(items):
            message = yield from _message(item, place, calls, room)
            if message is not None:
                new.append(message)
                room -= len(message.tokens) // _BYTES_A_TOKEN
    except TooManyTokens:
        raise context_length_exceeded(limit, None) from None
    _refuse_open_calls(calls)
    joined = tokens.unpack(b"".join((*opening, *in_prompt([*chain, *new]), PROMPT_END)))
    if len(joined) >= limit:
        raise context_length_exceeded(limit, len(joined))
    return Prompt(joined, items, new)


def in_prompt(messages: Sequence[StoredMessage]) -> Iterable[bytes]:
    """The tokens of those messages that a prompt shows: all but the analysis before the last final answer.

    Calls and their outputs stay on whatever channel they are, as tool use suffers without them.
    """
    last_final = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].channel == "final"), -1)
    for place, message in enumerate(messages):
        if place > last_final or message.channel != "analysis" or message.recipient is not None:
            yield message.tokens


def _opening(request: CreateRequest, identity: Identity, date: str, limit: int) -> Generator[None, None, list[bytes]]:
    """The system message, and the developer message where there are instructions or tools."""
    tools = request.tools
    system = system_message(
        identity=identity.name,
        knowledge_cutoff=identity.knowledge_cutoff,
        date=date,
        effort=HARMONY_EFFORT[request.effort],
        has_functions=bool(tools.functions),
    )
    if not request.instructions and not tools.functions:
        return [system]
    return [system, (yield from _developer_message(request.instructions or None, tools, limit))]


def _developer_message(instructions: str | None, tools: Tools, limit: int) -> Generator[None, None, bytes]:
    try:
        text = developer_text(instructions, tools.functions)
    except (SchemaTooDeep, SchemaTooLarge) as error:
        raise InvalidRequest(f"Invalid tools: {error}.", code="invalid_value", param="tools") from None
    return (yield from _cached_developer_message(text, limit))


_developer_cache: dict[str, bytes] = {}
"""Instructions and tools repeat from request to request; the oldest entry leaves first."""


def _cached_developer_message(text: str, limit: int) -> Generator[None, None, bytes]:
    kept = _developer_cache.get(text)
    if kept is None:
        kept = (yield from message_steps(text, "developer", limit=limit)).tokens
        if len(text) <= CACHED_DEVELOPER_CHARS:
            if len(_developer_cache) >= DEVELOPER_MESSAGES_CACHED:
                del _developer_cache[next(iter(_developer_cache))]
            _developer_cache[text] = kept
    return kept


class _Calls:
    """The function calls of a conversation so far, by call id: their names, and which still wait for an output."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.waiting: dict[str, None] = {}

    def made(self, call_id: str, name: str) -> None:
        self.names[call_id] = name
        self.waiting[call_id] = None

    def answered(self, call_id: str) -> None:
        self.waiting.pop(call_id, None)


def _calls(chain: Sequence[StoredMessage]) -> _Calls:
    calls = _Calls()
    for message in chain:
        if message.call_id is None:
            continue
        if message.role == "assistant" and message.recipient is not None:
            calls.made(message.call_id, message.recipient.removeprefix("functions."))
        else:
            calls.answered(message.call_id)
    return calls


def _refuse_open_calls(calls: _Calls) -> None:
    for call_id in calls.waiting:
        raise InvalidRequest(
            f"No tool output found for function call {call_id}. Send a function_call_output item with this call_id.",
            param="input",
        )


def _message(item: InputItem, place: int, calls: _Calls, room: int) -> Generator[None, None, StoredMessage | None]:
    """The item as a Harmony message, or None where the prompt doesn't show it."""
    if isinstance(item, MessageItem):
        return (yield from _said(item, room))
    if isinstance(item, ReasoningItem):
        if not item.content:
            return None
        return (yield from message_steps(item.text, "assistant", channel="analysis", limit=room))
    if isinstance(item, FunctionCallItem):
        return (yield from _call(item, calls, room))
    return (yield from _output(item, place, calls, room))


def _said(item: MessageItem, room: int) -> Generator[None, None, StoredMessage]:
    """A user's words as they are, an assistant's on its channel, and the rest as a developer's instructions.

    gpt-oss was trained with one system message, which is ours; so a system item is a developer's word.
    """
    if item.role == "user":
        return (yield from message_steps(item.text, "user", limit=room))
    if item.role == "assistant":
        channel = "commentary" if item.phase == "commentary" else "final"
        return (yield from message_steps(item.text, "assistant", channel=channel, limit=room))
    text = developer_text(item.text, ())
    return (yield from message_steps(text, "developer", limit=room))


def _call(item: FunctionCallItem, calls: _Calls, room: int) -> Generator[None, None, StoredMessage]:
    calls.made(item.call_id, item.name)
    return (
        yield from message_steps(
            item.arguments,
            "assistant",
            channel="commentary",
            recipient=f"functions.{item.name}",
            content_type="<|constrain|>json",
            call_id=item.call_id,
            limit=room,
        )
    )


def _output(item: FunctionCallOutputItem, place: int, calls: _Calls, room: int) -> Generator[None, None, StoredMessage]:
    name = calls.names.get(item.call_id)
    if name is None:
        raise InvalidRequest(
            f"No function call found for the output with call_id '{item.call_id}' at input[{place}]. Send the "
            "function_call item too, or continue from the response that made the call.",
            param="input",
        )
    calls.answered(item.call_id)
    return (
        yield from message_steps(
            item.text,
            "tool",
            name=f"functions.{name}",
            channel="commentary",
            recipient="assistant",
            call_id=item.call_id,
            limit=room,
        )
    )
