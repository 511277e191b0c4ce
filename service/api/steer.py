"""A steer: what a client says to a response that is being made. Its frame is read here, and what it makes of a request.

Shapes: `response.steer` as openai 3.51 types it. Never decide here what becomes of it.
"""

from collections.abc import Generator, Sequence
from typing import Literal

import msgspec

from service.api.decoding import ABSENT, decode, decode_list, decoder_of
from service.api.input.gathered import Gathered, Images
from service.api.input.items import InputItem
from service.api.input.read import led_by, message_of, read_input
from service.api.request import CreateRequest
from service.errors import InvalidRequest, invalid_value, missing

MAX_STEER_MESSAGES = 64
"""The most messages of one steer."""


MAX_STEER_BYTES = 1 << 20
"""The longest frame that is read: what is given back is sent as often as it comes."""

MAX_ID_BYTES = 4096
"""The longest id that is looked for, as JSON; ours are a hundredth of that."""


class _Sent(msgspec.Struct):
    previous_response_id: msgspec.Raw = ABSENT
    input: msgspec.Raw = ABSENT


class SentSteer(msgspec.Struct, frozen=True):
    """A steer as it was sent, as far as it must be known to be given back."""

    response_id: str
    input: msgspec.Raw


class _Steer(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["response.steer"]
    previous_response_id: str
    input: msgspec.Raw


class _Part(msgspec.Struct):
    type: Literal["input_text", "input_image", "input_file"]


class _UserMessage(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["user"]
    content: str | list[_Part]
    type: Literal["message"] = "message"


_SENT = decoder_of(_Sent)
_ID = decoder_of(str | None)
_STEER = decoder_of(_Steer)
_MESSAGE = decoder_of(_UserMessage)


def read_sent(frame: bytes) -> SentSteer:
    """Which response a frame is for, and its input. Raises InvalidRequest where it names none, or is too long."""
    if len(frame) > MAX_STEER_BYTES:
        raise InvalidRequest(
            f"A steer of {len(frame)} bytes is too long, at most {MAX_STEER_BYTES} are read.",
            code="too_many_pending_steers",
            param="input",
        )
    sent: _Sent = decode(frame, _SENT)
    size = len(memoryview(sent.previous_response_id))
    if size > MAX_ID_BYTES:
        raise invalid_value("previous_response_id", f"{size} bytes", f"At most {MAX_ID_BYTES} are read.")
    id = decode(sent.previous_response_id, _ID, "previous_response_id")
    if not id:
        raise missing("previous_response_id", "Give the id of the response that is to be steered.")
    return SentSteer(id, sent.input)


def read_steer(frame: bytes) -> tuple[msgspec.Raw, list[bytes]]:
    """The input of a steer, and its messages, each as JSON. Raises InvalidRequest; `read_in_steps` looks into them."""
    raw = decode(frame, _STEER).input
    sent = bytes(memoryview(raw))
    messages = decode_list(raw, MAX_STEER_MESSAGES, "input") if sent[:1] == b"[" else []
    if not messages and (sent[:1] == b"[" or sent in (b'""', b"null")):
        raise InvalidRequest("Nothing is said in 'input': give a text, or messages of the user's.", param="input")
    for place, message in enumerate(messages):
        decode(message, _MESSAGE, f"input[{place}]")
    return raw, list(map(bytes, messages)) or [message_of(sent)]


def read_in_steps(raw: msgspec.Raw, images: Images) -> Generator[None, None, list[InputItem]]:
    """Read the input of a steer as that of a request. Raises InvalidRequest."""
    return read_input(raw, Gathered(images=images), max_items=MAX_STEER_MESSAGES)


def listed(items: Sequence[bytes]) -> bytes:
    """Items, each as JSON, as a list."""
    return b"[%b]" % b",".join(items)


def led_by_steers(request: CreateRequest, said: Sequence[bytes]) -> CreateRequest:
    """The request with what was `said` before it."""
    return msgspec.structs.replace(request, input=led_by(listed(said), request.input))


def succeeding(
    request: CreateRequest, response_id: str, instructions: str | None, standing: Sequence[bytes], said: Sequence[bytes]
) -> CreateRequest:
    """The request that goes on from a response, for which a `request` asked, with what was `said` meanwhile.

    It has that one's settings: its `instructions`, which may be those of a stored prompt, and the items that are
    `standing`, as they say how a request is served.
    """
    return msgspec.structs.replace(
        request,
        input=msgspec.Raw(listed([*standing, *said])),
        previous_response_id=response_id,
        previous_input_messages=ABSENT,
        instructions=instructions,
        prompt=None,
    )
