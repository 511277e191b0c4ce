"""Input items: from the JSON of `input` to checked items, in the form in which they are listed again.

Clients replay what they were given, so members that an item may carry are accepted and dropped where we have no use
for them; ids too, as ours are derived from the response's (ids.py) and given by `identify` once that is known. What
the prompt would need and this release doesn't serve is a 400 that names it. How an item stands in the prompt is in
prompt.py.
"""

from collections.abc import Generator
from typing import Any, Literal, TypeVar

import msgspec

from service.protocol import ids
from service.protocol.decoding import decode, decode_list, decoder_of
from service.protocol.errors import InvalidRequest, invalid_value, missing, unsupported
from service.protocol.input_items import (
    CALL_NAME,
    FunctionCallItem,
    FunctionCallOutputItem,
    InputItem,
    MessageItem,
    ReasoningItem,
)

MAX_CALL_ID_CHARS = 256
ITEMS_A_STEP = 128
BYTES_A_STEP = 65_536
"""How many items, and how much JSON of them, is read before others get a turn: at most some 3 ms."""

MAX_PARTS = 1024
"""The most content parts of one item; all items of a request may have four times as many as there may be items."""

_PARTS_AN_ITEM = 4

_TEXT_PARTS = ("input_text", "output_text", "text")


T = TypeVar("T")
Reading = Generator[None, None, T]
"""Yields between pieces of work, and returns what was read."""


_ABSENT = msgspec.Raw(b"null")


class _Kind(msgspec.Struct):
    type: str | None = None
    role: msgspec.Raw = _ABSENT
    id: msgspec.Raw = _ABSENT


class _Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None


class _Message(msgspec.Struct):
    role: Literal["user", "assistant", "system", "developer"]
    content: msgspec.Raw
    phase: Literal["commentary", "final_answer"] | None = None


class _FunctionCall(msgspec.Struct):
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class _FunctionCallOutput(msgspec.Struct):
    call_id: str
    output: msgspec.Raw


class _Reasoning(msgspec.Struct):
    content: msgspec.Raw = _ABSENT
    summary: msgspec.Raw = _ABSENT
    encrypted_content: str | None = None


_KIND = decoder_of(_Kind)
_TEXT = decoder_of(str)
_TEXT_OR_PARTS = decoder_of(str | list[_Part])
_PART = decoder_of(_Part)
_MESSAGE = decoder_of(_Message)
_FUNCTION_CALL = decoder_of(_FunctionCall)
_FUNCTION_CALL_OUTPUT = decoder_of(_FunctionCallOutput)
_REASONING = decoder_of(_Reasoning)


def read_input(raw: msgspec.Raw, *, max_items: int) -> Reading[list[InputItem]]:
    """Read `input`, a text or a list of items, yielding now and then. Raises InvalidRequest, naming the item."""
    first = bytes(memoryview(raw)[:1])
    if first == b'"':
        return [_user_message(decode(raw, _TEXT, "input"))]
    if bytes(raw) == b"null":
        return []
    if first != b"[":
        raise InvalidRequest(
            "Invalid type for 'input': expected a string or a list of items.",
            code="invalid_type",
            param="input",
        )
    sent = decode_list(raw, max_items, "input")
    if len(memoryview(raw)) > BYTES_A_STEP:
        yield
    items: list[InputItem] = []
    read = parts = 0
    for place, item in enumerate(sent, 1):
        items.append((yield from _item(item, f"input[{place - 1}]")))
        parts += items[-1].parts
        if parts > max_items * _PARTS_AN_ITEM:
            raise InvalidRequest(
                f"Too many content parts in 'input': more than {max_items * _PARTS_AN_ITEM}. Join their texts.",
                code="invalid_value",
                param="input",
            )
        read += len(memoryview(item))
        if place % ITEMS_A_STEP == 0 or read > BYTES_A_STEP:
            read = 0
            yield
    return items


def identify(items: list[InputItem], response_id: str) -> None:
    """Give each item its id, which its place in the input of this response decides."""
    for place, item in enumerate(items):
        item.id = ids.input_item_id(response_id, str(item.__struct_config__.tag), place)


def _user_message(text: str) -> MessageItem:
    return MessageItem("user", [{"type": "input_text", "text": text}])


def _decode(raw: msgspec.Raw, decoder: "msgspec.json.Decoder[T]", where: str) -> Reading[T]:
    """`decode` as a step of its own where it is long: each scan of 8 MB takes up to 16 ms."""
    value = decode(raw, decoder, where)
    if len(memoryview(raw)) > BYTES_A_STEP:
        yield
    return value


def _item(raw: msgspec.Raw, where: str) -> Reading[InputItem]:
    kind: _Kind = yield from _decode(raw, _KIND, where)
    name = kind.type or ("message" if kind.role != _ABSENT else "item_reference" if kind.id != _ABSENT else None)
    if name is None:
        raise missing(f"{where}.type", "A message needs at least 'role' and 'content'.")
    reader = _READERS.get(name)
    if reader is None:
        raise unsupported(f"{where}.type", name, f"Items of these types are: {', '.join(_READERS)}.")
    return (yield from reader(raw, where))


def _message(raw: msgspec.Raw, where: str) -> Reading[MessageItem]:
    sent: _Message = yield from _decode(raw, _MESSAGE, where)
    kind = "output_text" if sent.role == "assistant" else "input_text"
    text = _text_or_parts(sent.content, f"{where}.content")
    if isinstance(text, str):
        content = [_text_part(kind, text)]
    else:
        content = [_part(part, kind, f"{where}.content[{place}]") for place, part in enumerate(text)]
    return MessageItem(sent.role, content, phase=sent.phase or msgspec.UNSET)


def _text_or_parts(raw: msgspec.Raw, where: str) -> str | list[_Part]:
    """A text, or the parts of a list, of which there may not be too many."""
    if bytes(memoryview(raw)[:1]) != b"[":
        return decode(raw, _TEXT_OR_PARTS, where)
    return _parts(raw, where)


def _parts(raw: msgspec.Raw, where: str) -> list[_Part]:
    sent = decode_list(raw, MAX_PARTS, where)
    return [decode(part, _PART, f"{where}[{place}]") for place, part in enumerate(sent)]


def _part(part: _Part, kind: str, where: str) -> dict[str, Any]:
    if part.type in _TEXT_PARTS:
        if part.text is None:
            raise missing(f"{where}.text", "A text part needs its text.")
        return _text_part(kind, part.text)
    if part.type == "refusal" and kind == "output_text":
        return {"type": "refusal", "refusal": part.refusal or ""}
    raise unsupported(f"{where}.type", part.type, "The model reads text; send parts of type 'input_text'.")


def _text_part(kind: str, text: str) -> dict[str, Any]:
    if kind == "output_text":
        return {"type": kind, "text": text, "annotations": [], "logprobs": []}
    return {"type": kind, "text": text}


def _function_call(raw: msgspec.Raw, where: str) -> Reading[FunctionCallItem]:
    sent: _FunctionCall = yield from _decode(raw, _FUNCTION_CALL, where)
    if not CALL_NAME.fullmatch(sent.name):
        raise invalid_value(
            f"{where}.name",
            sent.name,
            "A function's name has 1 to 128 of the characters A-Z, a-z, 0-9, _, . and -.",
        )
    if sent.namespace is not None:
        raise unsupported(f"{where}.namespace", sent.namespace, "Leave it out.")
    return FunctionCallItem(_checked_call_id(sent.call_id, where), sent.name, sent.arguments)


def _function_call_output(raw: msgspec.Raw, where: str) -> Reading[FunctionCallOutputItem]:
    sent: _FunctionCallOutput = yield from _decode(raw, _FUNCTION_CALL_OUTPUT, where)
    call_id = _checked_call_id(sent.call_id, where)
    output = _text_or_parts(sent.output, f"{where}.output")
    if isinstance(output, str):
        return FunctionCallOutputItem(call_id, output)
    parts = [_part(part, "input_text", f"{where}.output[{place}]") for place, part in enumerate(output)]
    return FunctionCallOutputItem(call_id, parts)


def _checked_call_id(call_id: str, where: str) -> str:
    if not 1 <= len(call_id) <= MAX_CALL_ID_CHARS:
        raise invalid_value(f"{where}.call_id", call_id, f"It has 1 to {MAX_CALL_ID_CHARS} characters.")
    return call_id


def _reasoning(raw: msgspec.Raw, where: str) -> Reading[ReasoningItem]:
    sent: _Reasoning = yield from _decode(raw, _REASONING, where)
    if sent.encrypted_content is not None:
        raise unsupported(f"{where}.encrypted_content", sent.encrypted_content, "Leave it out, or send null.")
    return ReasoningItem(
        content=[
            {"type": "reasoning_text", "text": part.text or ""} for part in _parts(sent.content, f"{where}.content")
        ],
        summary=[
            {"type": "summary_text", "text": part.text or ""} for part in _parts(sent.summary, f"{where}.summary")
        ],
    )


_READERS = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
    "reasoning": _reasoning,
}
