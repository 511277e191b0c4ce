"""The frames of a WebSocket: what a client's says it is, and events and errors as frames. No I/O.

A client's frame is read here just so far that its kind and its lane are known; what it asks for is read at its turn.
An event is the same JSON as over HTTP, in the same dialect, and behind it the lane's name where it has one.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from service.api import events
from service.api.events import Event
from service.decoding import decode
from service.errors import ApiError, InvalidRequest, brief, invalid_value, missing

CREATE = "response.create"
CANCEL = "response.cancel"
STEER = "response.steer"
PROCESSED = "response.processed"
"""The frame with which older clients acknowledge events. It has no effect."""

KINDS = (CREATE, CANCEL, STEER)

MAX_NAME_BYTES = 65_536
"""The longest that a kind, a lane or an id is read, as JSON: one that fills a frame would take a tenth of a second."""

_LANE = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_DATA = b"\ndata: "


class _Envelope(msgspec.Struct):
    """The kind of a frame, and its lane."""

    type: msgspec.Raw = msgspec.Raw(b"null")
    stream_id: msgspec.Raw = msgspec.Raw(b"null")
    response_id: msgspec.Raw = msgspec.Raw(b"null")


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class ClientFrame(NamedTuple):
    """A frame: its kind, the name of its lane, and for a cancel the response that it names."""

    kind: str
    lane: str | None = None
    response_id: str | None = None


def lane_of(frame: bytes) -> str | None:
    """The lane that a frame names, where that can be told, for an error about it."""
    try:
        return _read_lane(_ENVELOPE.decode(frame).stream_id)
    except (InvalidRequest, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def read_envelope(frame: bytes) -> ClientFrame:
    """A frame, by its kind. Raises InvalidRequest."""
    sent = decode(frame, _Envelope)
    kind = _name(sent.type, "type")
    if kind in (PROCESSED, STEER):
        return ClientFrame(kind)
    if kind is None:
        raise missing("type", f"Give one of {', '.join(KINDS)}.")
    if kind not in KINDS:
        raise InvalidRequest(
            f"Unknown type of frame: '{brief(kind)}'. Give one of {', '.join(KINDS)}.",
            code="unknown_event_type",
            param="type",
        )
    response_id = _name(sent.response_id, "response_id") if kind == CANCEL else None
    return ClientFrame(kind, _read_lane(sent.stream_id), response_id)


def _name(sent: msgspec.Raw, where: str) -> str | None:
    """A short text, or None for null. Raises InvalidRequest."""
    size = len(memoryview(sent))
    if size > MAX_NAME_BYTES:
        raise invalid_value(where, f"{size} bytes", f"At most {MAX_NAME_BYTES} bytes are allowed.")
    return decode(sent, str | None, where)


def _read_lane(sent: msgspec.Raw) -> str | None:
    """The name of a lane, None for the one without a name. Raises InvalidRequest."""
    try:
        name = _name(sent, "stream_id")
    except InvalidRequest:
        name = ""
    if name is not None and not _LANE.fullmatch(name):
        value = bytes(memoryview(sent)[:MAX_NAME_BYTES]).decode(errors="replace")
        raise InvalidRequest(
            f"Invalid value for 'stream_id': {brief(value)}. Give 1 to 256 of A-Z a-z 0-9 _ . - or leave it out.",
            code="invalid_stream_id",
            param="stream_id",
        )
    return name


def shown_in_frames(batch: Sequence[Event]) -> list[Event]:
    """A batch of events without an `error`, as one answers a frame and `response.failed` says it. Later events move
    up, so that numbers have no gap.
    """
    kept = [event for event in batch if not isinstance(event, events.Error)]
    for number, event in enumerate(kept, batch[0].sequence_number):
        event.sequence_number = number
    return kept


def in_frames(sent: bytes, lane: str | None) -> list[bytes]:
    """Server-sent events as frames. Comments are none."""
    return [in_lane(data, lane) for piece in sent.split(b"\n\n")[:-1] if (data := piece.partition(_DATA)[2])]


def error_frame(error: ApiError, lane: str | None, request_id: str | None = None) -> bytes:
    """An error as its sender gets it: the envelope of HTTP, with the status and the headers that it had there."""
    headers = {} if request_id is None else {"x-request-id": request_id}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    if error.retry_after_ms is not None:
        headers["retry-after-ms"] = str(error.retry_after_ms)
    body = {"type": error.type, "code": error.code, "message": error.message, "param": error.param, "headers": headers}
    return in_lane(msgspec.json.encode({"type": "error", "status": error.status, "error": body}), lane)


def in_lane(frame: bytes, lane: str | None) -> bytes:
    """The frame with the name of its lane, where that has one."""
    return frame if lane is None else b'%b,"stream_id":"%b"}' % (frame[:-1], lane.encode())
