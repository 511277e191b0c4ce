"""Traces that clients send as to OpenAI (`POST /v1/traces/ingest`): their types, their reading, and their refusals.

The Agents SDK sends them: a trace, which is one run of a workflow, and spans, each of which is one step of it. A span's
data is read for its kind, names, ids and counts, and for the places of its input and output. Pure.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from service.decoding import ABSENT, decode, decode_list
from service.errors import InvalidRequest, invalid_value

MAX_TOLD = 1_000
"""The most traces and spans in one request; the SDK sends 128."""

MAX_ID_CHARS = 256
MAX_NAME_CHARS = 512

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""The range of times that nanoseconds in 64 bits can express."""

Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]
Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]


class GenerationUsage(msgspec.Struct, frozen=True):
    """The tokens of a generation, where the client reports them."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class SpanData(msgspec.Struct, frozen=True):
    """The data of a span: its `type`, and the members that this kind has."""

    type: Name
    name: Name | None = None
    model: Name | None = None
    response_id: Id | None = None
    usage: GenerationUsage | None = None
    input: msgspec.Raw = ABSENT
    output: msgspec.Raw = ABSENT


class ToldSpan(msgspec.Struct, frozen=True, tag_field="object", tag="trace.span"):
    """One step of a run."""

    id: Id
    trace_id: Id
    span_data: SpanData
    parent_id: Id | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: msgspec.Raw = ABSENT

    @property
    def failed(self) -> bool:
        """Whether it has any error."""
        return bytes(self.error) != b"null"


class ToldTrace(msgspec.Struct, frozen=True, tag_field="object", tag="trace"):
    """One run of a workflow; those of one `group_id` are one conversation."""

    id: Id
    workflow_name: Name = ""
    group_id: Name | None = None


class _Body(msgspec.Struct):
    data: msgspec.Raw


def read_told(body: bytes) -> Sequence[ToldSpan | ToldTrace]:
    """The traces and spans in a body. Raises InvalidRequest."""
    data = decode(body, _Body).data
    if data == ABSENT:
        raise InvalidRequest("Invalid type for 'data': expected a list.", code="invalid_type", param="data")
    each = decode_list(data, MAX_TOLD, "data")
    told = [decode(raw, ToldSpan | ToldTrace, f"data[{number}]") for number, raw in enumerate(each)]
    for number, one in enumerate(told):
        if isinstance(one, ToldSpan):
            _check_time(one.started_at, f"data[{number}].started_at")
            _check_time(one.ended_at, f"data[{number}].ended_at")
    return told


def _check_time(time: datetime | None, where: str) -> None:
    if time is not None and not EARLIEST <= utc(time) < LATEST:
        raise invalid_value(where, time.isoformat(), f"Between {EARLIEST.year} and {LATEST.year} it can be kept.")


def utc(time: datetime) -> datetime:
    """A time with its zone, which is UTC where it names none."""
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
