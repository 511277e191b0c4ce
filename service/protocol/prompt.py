"""A request and the chain that it continues, to the tokens that the engine gets and the messages that are new.

    system · developer (this request's instructions and tools) · chain · new input · <|start|>assistant

System and developer messages are made afresh for every request and never join a chain. Kept messages are joined as
they stand, so a continued prompt begins with exactly the tokens of the one before it; only analysis before the last
final answer is left out, and what was left out once never comes back on that branch, because a final never leaves
a chain. Building is a generator that yields between pieces of work, so that no prompt stalls the event loop.
"""

from array import array
from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache

import msgspec

from service.protocol import render, tokens
from service.protocol.errors import InvalidRequest, context_length_exceeded
from service.protocol.input import read_input
from service.protocol.input_items import (
    FunctionCallItem,
    FunctionCallOutputItem,
    InputItem,
    MessageItem,
    ReasoningItem,
)
from service.protocol.render import PROMPT_END, developer_text, message_steps, system_message
from service.protocol.tokens import RunTooLong, TooManyTokens
from service.protocol.tools import Tools, read_tools
from service.protocol.wire import HARMONY_EFFORT, CreateRequest
from store.turn import StoredMessage

DEVELOPER_MESSAGES_CACHED = 64
CACHED_DEVELOPER_CHARS = 65_536
BYTES_A_STEP = 65_536
"""How many bytes of new tokens are made before others get a turn."""


class Identity(msgspec.Struct, frozen=True):
    """What the system message says of the model, and how long its context is, in tokens."""

    name: str
    knowledge_cutoff: str
    context_tokens: int


class Limits(msgspec.Struct, frozen=True):
    """The most input items, tools, and bytes of the tools' JSON in one request."""

    items: int = 4096
    tools: int = 128
    tools_bytes: int = 1_048_576


class Prompt(msgspec.Struct, frozen=True):
    """What the engine gets, and what a response shows and a turn keeps of the request."""

    tokens: "array[int]"
    tools: Tools
    items: list[InputItem]
    messages: list[StoredMessage]


def build_prompt(
    request: CreateRequest, chain: Sequence[StoredMessage], identity: Identity, *, date: str, limits: Limits
) -> Generator[None, None, Prompt]:
    """Read the request's tools and input and build its prompt, yielding between pieces of a few milliseconds.

    `chain` is oldest first; `date` is the request's UTC day, such as 2025-06-28. Raises InvalidRequest: for bad
    items, for call ids without a call, for calls without an output, and for a prompt that leaves no room.
    """
    tools = yield from read_tools(request.tools, max_tools=limits.tools, max_bytes=limits.tools_bytes)
    items = yield from read_input(request.input, max_items=limits.items)
    if not items and not chain:
        raise InvalidRequest("'input' is empty: give at least one item.", code="invalid_value", param="input")
    limit = identity.context_tokens
    try:
        opening = yield from _opening(request, tools, identity, date)
        new = yield from _new_messages(items, chain, limit)
    except TooManyTokens:
        raise context_length_exceeded(limit, None) from None
    except RunTooLong as error:
        raise InvalidRequest(f"Invalid text: {error}.", code="invalid_value", param="input") from None
    joined = tokens.unpack(b"".join((*opening, *in_prompt([*chain, *new]), PROMPT_END)))
    if len(joined) >= limit:
        raise context_length_exceeded(limit, len(joined))
    return Prompt(joined, tools, items, new)


def _new_messages(
    items: Sequence[InputItem], chain: Sequence[StoredMessage], room: int
) -> Generator[None, None, list[StoredMessage]]:
    """The messages that the items add, of at most `room` tokens. Raises TooManyTokens, InvalidRequest."""
    calls = _calls(chain)
    new: list[StoredMessage] = []
    unbroken = 0
    for place, item in enumerate(items):
        added = yield from _message(item, place, calls, room)
        if added is None:
            continue
        new.append(added)
        room -= len(added.tokens) // tokens.BYTES_A_TOKEN
        unbroken += len(added.tokens)
        if unbroken > BYTES_A_STEP:
            unbroken = 0
            yield
    _refuse_open_calls(calls)
    return new


def in_prompt(messages: Sequence[StoredMessage]) -> Iterable[bytes]:
    """The tokens of those messages that a prompt shows: all but the analysis before the last final answer.

    Calls and their outputs stay on whatever channel they are, as tool use suffers without them.
    """
    last_final = next((i for i in range(len(messages) - 1, -1, -1) if _is_final(messages[i])), -1)
    for place, message in enumerate(messages):
        if place > last_final or message.channel != "analysis" or message.recipient is not None:
            yield message.tokens


def _is_final(message: StoredMessage) -> bool:
    """Whether it is a final answer; a model may also call a function on that channel."""
    return message.channel == "final" and message.recipient is None


def _opening(request: CreateRequest, tools: Tools, identity: Identity, date: str) -> Generator[None, None, list[bytes]]:
    """The system message, and the developer message where there are instructions or tools."""
    system = system_message(
        identity=identity.name,
        knowledge_cutoff=identity.knowledge_cutoff,
        date=date,
        effort=HARMONY_EFFORT[request.effort],
        has_functions=bool(tools.section),
    )
    text = developer_text(request.instructions or None, tools.section)
    if not text:
        return [system]
    if len(text) <= CACHED_DEVELOPER_CHARS:
        return [system, _developer_message(text)]
    long = yield from message_steps(text, "developer", limit=identity.context_tokens)
    return [system, long.tokens]


@lru_cache(maxsize=DEVELOPER_MESSAGES_CACHED)
def _developer_message(text: str) -> bytes:
    """Instructions and tools repeat from request to request, so short ones are encoded once."""
    return render.message(text, "developer").tokens


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
    """What was called in a chain. A call waits only if nobody but the model spoke since: any before that was answered
    in its time, and an answer that isn't there has been erased.
    """
    calls = _Calls()
    for message in chain:
        if message.role != "assistant":
            calls.waiting.clear()
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
    text = developer_text(item.text)
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
