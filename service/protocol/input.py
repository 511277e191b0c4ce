"""Input items: from the JSON of `input` to checked items, in the form in which they are listed again.

Clients replay what they were given, so members that an item may carry are accepted and dropped where we have no use
for them; ids too, as ours are derived from the response's (ids.py) and given by `identify` once that is known. What
the prompt would need and this release doesn't serve is a 400 that names it. How an item stands in the prompt is in
prompt.py.
"""

import re
from collections.abc import Generator
from typing import Any, Literal

import msgspec

from service.protocol import ids
from service.protocol.decoding import decode, decoder_of
from service.protocol.errors import InvalidRequest, invalid_value, missing, unsupported

MAX_CALL_ID_CHARS = 256
ITEMS_A_STEP = 128
"""How many items are read before others get a turn: below 1 ms."""

_CALL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_TEXT_PARTS = ("input_text", "output_text", "text")


class MessageItem(msgspec.Struct, tag="message", tag_field="type"):
    """A message of the caller's, or one of the assistant's that the caller replays."""

    role: Literal["user", "assistant", "system", "developer"]
    content: list[dict[str, Any]]
    status: str = "completed"
    id: str = ""
    phase: Literal["commentary", "final_answer"] | msgspec.UnsetType = msgspec.UNSET

    @property
    def text(self) -> str:
        """All of its parts' text."""
        return "".join(part.get("text", part.get("refusal", "")) for part in self.content)


class FunctionCallItem(msgspec.Struct, tag="function_call", tag_field="type"):
    """A call that the model made earlier."""

    call_id: str
    name: str
    arguments: str
    status: str = "completed"
    id: str = ""


class FunctionCallOutputItem(msgspec.Struct, tag="function_call_output", tag_field="type"):
    """What the function returned."""

    call_id: str
    output: str | list[dict[str, Any]]
    status: str = "completed"
    id: str = ""

    @property
    def text(self) -> str:
        """The output as one text."""
        return self.output if isinstance(self.output, str) else "".join(part["text"] for part in self.output)


class ReasoningItem(msgspec.Struct, tag="reasoning", tag_field="type"):
    """What the model thought earlier; with a summary alone it adds nothing to the prompt."""

    content: list[dict[str, Any]]
    summary: list[dict[str, Any]]
    status: str = "completed"
    id: str = ""

    @property
    def text(self) -> str:
        """The raw reasoning."""
        return "\n".join(part["text"] for part in self.content)


InputItem = MessageItem | FunctionCallItem | FunctionCallOutputItem | ReasoningItem


class _Kind(msgspec.Struct):
    type: str | None = None
    role: Any = None
    id: Any = None


class _Part(msgspec.Struct):
    type: str
    text: str | None = None
    refusal: str | None = None


class _Message(msgspec.Struct):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[_Part]
    phase: Literal["commentary", "final_answer"] | None = None


class _FunctionCall(msgspec.Struct):
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class _FunctionCallOutput(msgspec.Struct):
    call_id: str
    output: str | list[_Part]


class _Reasoning(msgspec.Struct):
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    encrypted_content: str | None = None


_KIND = decoder_of(_Kind)
_TEXT = decoder_of(str)
_LIST = decoder_of(list[msgspec.Raw])
_MESSAGE = decoder_of(_Message)
_FUNCTION_CALL = decoder_of(_FunctionCall)
_FUNCTION_CALL_OUTPUT = decoder_of(_FunctionCallOutput)
_REASONING = decoder_of(_Reasoning)


def read_input(raw: msgspec.Raw, *, max_items: int) -> Generator[None, None, list[InputItem]]:
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
    sent = decode(raw, _LIST, "input")
    if len(sent) > max_items:
        raise InvalidRequest(
            f"Too many items in 'input': {len(sent)}, at most {max_items} are allowed. Continue a stored response "
            "instead of sending everything.",
            code="invalid_value",
            param="input",
        )
    items: list[InputItem] = []
    for place, item in enumerate(sent):
        items.append(_item(item, f"input[{place}]"))
        if place % ITEMS_A_STEP == ITEMS_A_STEP - 1:
            yield
    return items


def identify(items: list[InputItem], response_id: str) -> None:
    """Give each item its id, which its place in the input of this response decides."""
    for place, item in enumerate(items):
        item.id = ids.input_item_id(response_id, str(item.__struct_config__.tag), place)


def _user_message(text: str) -> MessageItem:
    return MessageItem("user", [{"type": "input_text", "text": text}])


def _item(raw: msgspec.Raw, where: str) -> InputItem:
    kind = decode(raw, _KIND, where)
    name = kind.type or ("message" if kind.role is not None else "item_reference" if kind.id else None)
    if name is None:
        raise missing(f"{where}.type", "A message needs at least 'role' and 'content'.")
    reader = _READERS.get(name)
    if reader is None:
        raise unsupported(f"{where}.type", name, f"Items of these types are: {', '.join(_READERS)}.")
    return reader(raw, where)


def _message(raw: msgspec.Raw, where: str) -> MessageItem:
    sent = decode(raw, _MESSAGE, where)
    kind = "output_text" if sent.role == "assistant" else "input_text"
    if isinstance(sent.content, str):
        content = [_text_part(kind, sent.content)]
    else:
        content = [_part(part, kind, f"{where}.content[{place}]") for place, part in enumerate(sent.content)]
    return MessageItem(sent.role, content, phase=sent.phase or msgspec.UNSET)


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


def _function_call(raw: msgspec.Raw, where: str) -> FunctionCallItem:
    sent = decode(raw, _FUNCTION_CALL, where)
    if not _CALL_NAME.fullmatch(sent.name):
        raise invalid_value(
            f"{where}.name",
            sent.name,
            "A function's name has 1 to 128 of the characters A-Z, a-z, 0-9, _, . and -.",
        )
    if sent.namespace is not None:
        raise unsupported(f"{where}.namespace", sent.namespace, "Leave it out.")
    return FunctionCallItem(_checked_call_id(sent.call_id, where), sent.name, sent.arguments)


def _function_call_output(raw: msgspec.Raw, where: str) -> FunctionCallOutputItem:
    sent = decode(raw, _FUNCTION_CALL_OUTPUT, where)
    call_id = _checked_call_id(sent.call_id, where)
    if isinstance(sent.output, str):
        return FunctionCallOutputItem(call_id, sent.output)
    parts = [_part(part, "input_text", f"{where}.output[{place}]") for place, part in enumerate(sent.output)]
    return FunctionCallOutputItem(call_id, parts)


def _checked_call_id(call_id: str, where: str) -> str:
    if not 1 <= len(call_id) <= MAX_CALL_ID_CHARS:
        raise invalid_value(f"{where}.call_id", call_id, f"It has 1 to {MAX_CALL_ID_CHARS} characters.")
    return call_id


def _reasoning(raw: msgspec.Raw, where: str) -> ReasoningItem:
    sent = decode(raw, _REASONING, where)
    if sent.encrypted_content is not None:
        raise unsupported(f"{where}.encrypted_content", sent.encrypted_content, "Leave it out, or send null.")
    return ReasoningItem(
        content=[{"type": "reasoning_text", "text": part.text or ""} for part in sent.content or ()],
        summary=[{"type": "summary_text", "text": part.text or ""} for part in sent.summary or ()],
    )


_READERS = {
    "message": _message,
    "function_call": _function_call,
    "function_call_output": _function_call_output,
    "reasoning": _reasoning,
}
