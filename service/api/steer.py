"""A steer: a client's messages to a response that is being made. This file reads its frame or body, and makes the
successor's request.

Shapes: `response.steer` as openai 3.54 types it. Never decide here whether a steer is taken.
"""

from collections.abc import Generator, Sequence
from typing import Any, Literal

import msgspec

from service.api import response as shapes
from service.api.content import PictureBounds
from service.api.items import Gathered, InputItem
from service.api.read import led_by, message_of, read_input
from service.api.request import CreateRequest
from service.decoding import ABSENT, decode, decode_list
from service.errors import InvalidRequest, invalid_value, missing

MAX_STEER_MESSAGES = 64
"""The most messages of one steer."""


MAX_STEER_BYTES = 1 << 20
"""The longest frame that is read: a steer that is given back is sent as often as it comes."""

MAX_ID_BYTES = 4096
"""The longest id that is looked up, as JSON; ours are a hundredth of that."""


class NotSteered(Exception):
    """The reason for which a steer is given back."""

    def __init__(self, code: shapes.SteerCode, message: str) -> None:
        super().__init__(message)
        self.code: shapes.SteerCode = code
        self.message = message


class _Sent(msgspec.Struct):
    previous_response_id: msgspec.Raw = ABSENT
    input: msgspec.Raw = ABSENT


class SentSteer(msgspec.Struct, frozen=True):
    """A steer as it was sent, with the members that are needed to give it back."""

    response_id: str
    input: msgspec.Raw


class _Steer(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["response.steer"]
    previous_response_id: str
    input: msgspec.Raw


class _Posted(msgspec.Struct, forbid_unknown_fields=True):
    input: msgspec.Raw = ABSENT
    previous_response_id: str | None = None
    type: Literal["response.steer"] = "response.steer"


class _Part(msgspec.Struct):
    type: Literal["input_text", "input_image", "input_file"]


class _UserMessage(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["user"]
    content: str | list[_Part]
    type: Literal["message"] = "message"


def read_sent(frame: bytes) -> SentSteer:
    """The steer of a frame: its response and its input. Raises InvalidRequest where it names none, or is too long."""
    _refuse_long(frame)
    sent = decode(frame, _Sent)
    size = len(memoryview(sent.previous_response_id))
    if size > MAX_ID_BYTES:
        raise invalid_value("previous_response_id", f"{size} bytes", f"At most {MAX_ID_BYTES} bytes are allowed.")
    id = decode(sent.previous_response_id, str | None, "previous_response_id")
    if not id:
        raise missing("previous_response_id", "Give the id of the response to steer.")
    return SentSteer(id, sent.input)


def _refuse_long(sent: bytes) -> None:
    if len(sent) > MAX_STEER_BYTES:
        raise InvalidRequest(
            f"A steer of {len(sent)} bytes is too long, at most {MAX_STEER_BYTES} are allowed.",
            code="steer_too_large",
            param="input",
        )


def read_posted(body: bytes, response_id: str) -> msgspec.Raw:
    """The input of a steer that was POSTed to a response. Its messages are as `messages_in` takes them.

    Raises InvalidRequest; `read_in_steps` looks into them.
    """
    _refuse_long(body)
    posted = decode(body, _Posted)
    if posted.previous_response_id not in (None, response_id):
        raise invalid_value(
            "previous_response_id", posted.previous_response_id, "Leave it out, or give the id that is in the path."
        )
    messages_in(posted.input)
    return posted.input


def read_steer(frame: bytes) -> tuple[msgspec.Raw, list[bytes]]:
    """The input of a steer, and its messages, each as JSON. Raises InvalidRequest; `read_in_steps` looks into them."""
    raw = decode(frame, _Steer).input
    return raw, messages_in(raw)


def messages_in(raw: msgspec.Raw) -> list[bytes]:
    """The messages of a steer's input, each as JSON. Raises InvalidRequest."""
    sent = bytes(memoryview(raw))
    messages = decode_list(raw, MAX_STEER_MESSAGES, "input") if sent[:1] == b"[" else []
    if not messages and (sent[:1] == b"[" or sent in (b'""', b"null")):
        raise InvalidRequest("'input' is empty: send a text, or user messages.", param="input")
    for place, message in enumerate(messages):
        decode(message, _UserMessage, f"input[{place}]")
    return list(map(bytes, messages)) or [message_of(sent)]


def read_in_steps(raw: msgspec.Raw, bounds: PictureBounds | None) -> Generator[None, None, list[InputItem]]:
    """Read the input of a steer as that of a request, with these bounds of pictures. Raises InvalidRequest."""
    return read_input(raw, Gathered(bounds), max_items=MAX_STEER_MESSAGES)


def json_list(items: Sequence[bytes]) -> bytes:
    """Items, each as JSON, as a list."""
    return b"[%b]" % b",".join(items)


def led_by_steers(request: CreateRequest, said: Sequence[bytes]) -> CreateRequest:
    """The request with the messages that were `said` put before its input."""
    return msgspec.structs.replace(request, input=led_by(json_list(said), request.input))


def succeeding(
    request: CreateRequest, response_id: str, instructions: str | None, standing: Sequence[bytes], said: Sequence[bytes]
) -> CreateRequest:
    """The request that goes on from the response of a `request`, with the messages that were `said` meanwhile.

    It has that request's settings: its `instructions`, which may be those of a stored prompt, and its `standing`
    items, which say how a request is served.
    """
    return msgspec.structs.replace(
        request,
        input=msgspec.Raw(json_list([*standing, *said])),
        previous_response_id=response_id,
        previous_input_messages=ABSENT,
        instructions=instructions,
        prompt=None,
    )


# --- steered responses ---


def is_steerable(request: CreateRequest) -> bool:
    """Whether the response of a request can be steered, as far as the request says."""
    return request.generate and request.conversation is None and request.managing is None


def no_steers_reason(id: str, status: shapes.ResponseStatus) -> NotSteered:
    """The reason why a response takes no more steers."""
    if status is shapes.ResponseStatus.COMPLETED:
        return NotSteered("response_already_completed", f"The response '{id}' is complete. Continue it instead.")
    return NotSteered("response_not_active", f"The response '{id}' has ended ({status.value}).")


def required_input(response: shapes.Response) -> list[dict[str, Any]]:
    """The outputs that a client owes a response: one for each of its calls."""
    required: list[dict[str, Any]] = []
    for item in response.output:
        if isinstance(item, shapes.OwnCall) and item.status == "completed":
            kind = "tool_search" if isinstance(item, shapes.ToolSearchCall) else item.__struct_config__.tag
            named = {"name": item.name} if isinstance(item, shapes.FunctionCall) else {}
            required.append({"type": f"{kind}_output", "call_id": item.call_id, **named})
    return required


_listed = msgspec.json.Decoder(list[msgspec.Raw])


def settings_of(request: CreateRequest, instructions: str | None, standing: Sequence[bytes]) -> bytes:
    """The settings that a response's successor takes over, in the form that `successor_request` reads; the rest is as
    for `succeeding`. Never take a member of CreateRequest away that these bytes may have.
    """
    return msgspec.json.encode(succeeding(request, "", instructions, standing, ()))


def successor_request(settings: bytes, response_id: str, said: Sequence[bytes]) -> CreateRequest:
    """The request that goes on from a response with the messages that were `said` to it, made of the kept settings.
    Raises msgspec.DecodeError for settings of a release whose requests differ.
    """
    request = msgspec.json.decode(settings, type=CreateRequest)
    standing = list(map(bytes, _listed.decode(request.input)))
    return succeeding(request, response_id, request.instructions, standing, said)
