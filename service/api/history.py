"""`previous_input_messages`: a history that the client keeps itself, as Harmony messages or in chat's form.

Harmony's form is that of a response's `input_messages` and `output_messages`, or openai-harmony's `Message.to_dict`;
chat's is that of chat completions, with `tool_calls` and `tool_call_id`. System and developer messages are left out,
as a prompt's are always made of the request itself. Call ids are matched, and names of tools are filled in.
"""

from collections.abc import Generator

import msgspec

from service.api.content import text_of, text_or_parts
from service.api.items import BYTES_A_STEP, CALL_NAME, checked_call_id, checked_name
from service.api.tools.callee import FUNCTIONS
from service.decoding import ABSENT, decode, decode_list
from service.errors import InvalidRequest, invalid_value, missing, not_allowed
from service.harmony.header import CHANNELS, JSON_TYPE

PARAM = "previous_input_messages"
MAX_CALLS = 128
"""The most calls of one message in chat's form."""

MESSAGES_A_STEP = 128
MAX_CONTENT_TYPE_CHARS = 64


class Earlier(msgspec.Struct, frozen=True):
    """A message of such a history; the members are those of a Harmony message. Of an answering tool, `name` is its
    name where the client gave one.
    """

    role: str
    text: str
    where: str
    name: str | None = None
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None
    call_id: str | None = None


class _Author(msgspec.Struct):
    role: str
    name: str | None = None


class _Function(msgspec.Struct):
    name: str
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Sent(msgspec.Struct):
    role: str | None = None
    author: _Author | None = None
    name: str | None = None
    content: msgspec.Raw = ABSENT
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None
    call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: msgspec.Raw = ABSENT
    tool_call_id: str | None = None


_LEFT_OUT = ("system", "developer")


def read_previous(raw: msgspec.Raw, *, max_messages: int) -> Generator[None, None, list[Earlier]]:
    """Read the messages, oldest first, yielding now and then. Raises InvalidRequest, naming the message."""
    earlier: list[Earlier] = []
    read = 0
    for place, message in enumerate(decode_list(raw, max_messages, PARAM), 1):
        where = f"{PARAM}[{place - 1}]"
        sent = decode(message, _Sent, where)
        earlier += _messages(sent, where)
        read += len(memoryview(message))
        if place % MESSAGES_A_STEP == 0 or read > BYTES_A_STEP:
            read = 0
            yield
    return earlier


def _messages(sent: _Sent, where: str) -> list[Earlier]:
    """The Harmony messages of one sent message; one in chat's form may become several."""
    role = sent.author.role if sent.author is not None else sent.role
    if role is None:
        raise missing(f"{where}.role", "Give 'user', 'assistant' or 'tool'.")
    if role in _LEFT_OUT:
        return []
    if role == "user":
        return [Earlier("user", _text(sent, where), where)]
    if role == "tool":
        return [_answer(sent, where)]
    if role != "assistant":
        raise invalid_value(f"{where}.role", role, "Give 'user', 'assistant' or 'tool'; others are left out.")
    if sent.author is not None or sent.channel is not None or sent.recipient is not None:
        return [_sampled_message(sent, where)]
    return _chat(sent, where)


def _sampled_message(sent: _Sent, where: str) -> Earlier:
    """An assistant's message in Harmony's form."""
    channel = sent.channel or "final"
    if channel not in CHANNELS:
        raise invalid_value(f"{where}.channel", channel, f"Give one of {', '.join(sorted(CHANNELS))}.")
    recipient = sent.recipient if sent.recipient not in ("all", "assistant") else None
    if recipient is not None and not CALL_NAME.fullmatch(recipient):
        raise invalid_value(f"{where}.recipient", recipient, "Give a name such as 'functions.get_weather'.")
    kind = sent.content_type
    if kind is not None and (len(kind) > MAX_CONTENT_TYPE_CHARS or not kind.isprintable()):
        raise invalid_value(f"{where}.content_type", kind, "Give a type such as '<|constrain|>json', or leave it out.")
    return Earlier(
        "assistant",
        _text(sent, where),
        where,
        channel=channel,
        recipient=recipient,
        content_type=kind,
        call_id=None if recipient is None else _call_id(sent.call_id, f"{where}.call_id"),
    )


def _chat(sent: _Sent, where: str) -> list[Earlier]:
    """An assistant's message in chat's form: its reasoning, its text, and its calls."""
    calls = decode_list(sent.tool_calls, MAX_CALLS, f"{where}.tool_calls")
    out: list[Earlier] = []
    thought = sent.reasoning or sent.reasoning_content
    if thought:
        out.append(Earlier("assistant", thought, where, channel="analysis"))
    text = "" if sent.content == ABSENT else _text(sent, where)
    if text:
        out.append(Earlier("assistant", text, where, channel="commentary" if calls else "final"))
    for place, raw in enumerate(calls):
        at = f"{where}.tool_calls[{place}]"
        call = decode(raw, _ToolCall, at)
        out.append(
            Earlier(
                "assistant",
                call.function.arguments or "",
                where,
                channel="commentary",
                recipient=f"{FUNCTIONS}.{checked_name(call.function.name, f'{at}.function.name')}",
                content_type=JSON_TYPE,
                call_id=_call_id(call.id, f"{at}.id"),
            )
        )
    return out


def _answer(sent: _Sent, where: str) -> Earlier:
    """A tool's message in either form: Harmony's names the tool, chat's the call."""
    call_id = _call_id(sent.tool_call_id or sent.call_id, f"{where}.tool_call_id")
    name = sent.author.name if sent.author is not None else sent.name
    return Earlier(
        "tool",
        _text(sent, where),
        where,
        name=None if name is None else checked_name(name, f"{where}.name"),
        channel=sent.channel if sent.channel in CHANNELS else "commentary",
        recipient="assistant",
        call_id=call_id,
    )


def _text(sent: _Sent, where: str) -> str:
    if sent.content == ABSENT:
        raise missing(f"{where}.content", "Give a text, or a list of text parts.")
    content = text_or_parts(sent.content, "input_text", f"{where}.content", images=[])
    return content if isinstance(content, str) else text_of(content)


def _call_id(call_id: str | None, where: str) -> str | None:
    return None if call_id is None else checked_call_id(call_id, where)


def unknown_call(earlier: Earlier) -> InvalidRequest:
    """The refusal of a tool's answer to a call that nobody made."""
    named = f"the call '{earlier.call_id}'" if earlier.call_id else "a call"
    return not_allowed(
        f"The tool's message at {earlier.where} answers {named}, but no earlier message makes that call. Send the "
        "call, too.",
        earlier.where,
    )
