"""`POST /v1/traces/ingest`: what clients tell of their own traces, passed on to where those of this service go.

Where nothing is traced it is read, and dropped.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from time import time_ns

from fastapi import APIRouter
from starlette.responses import Response
from starlette.responses import Response as HttpResponse

from service.api.traces import EARLIEST, SpanData, ToldSpan, ToldTrace, read_told, utc
from service.decoding import ABSENT
from service.spans import Fact, IngestedSpan, conversation
from service.web.entering import Aside

router = APIRouter(prefix="/v1", tags=["Traces"])

OPERATIONS = {"agent": "invoke_agent", "generation": "chat", "function": "execute_tool"}
"""The names in OpenTelemetry's GenAI conventions of the kinds of spans that they know."""

_PLAIN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
"""A group's id that is one: anything else may be somebody's words."""


@router.post("/traces/ingest", summary="Take in traces of a client", operation_id="ingestTraces")
async def ingest(request: Aside) -> Response:
    """Traces and spans as the Agents SDK exports them, in `data`. They go where the service's own traces go."""
    exchange, tracer = request.exchange, request.service.tracer
    body = await request.body()
    async with request.preparing(len(body)):
        told = read_told(body)
        kept = tracer.take(exchange.tenant, [*_spans(told, time_ns(), shows=tracer.shows)]) if tracer.on else 0
    exchange.facts |= {"spans": len(told), "spans_kept": kept}
    return HttpResponse(status_code=204)


def _spans(told: Sequence[ToldSpan | ToldTrace], now: int, *, shows: bool) -> Iterator[IngestedSpan]:
    """Spans of what was told, with what was written where the tracer `shows` that. A trace is a span too, above
    those of it that have nothing else above them.
    """
    starts: dict[str, int] = {}
    for each in told:
        if isinstance(each, ToldSpan):
            started = _nanoseconds(each.started_at, now)
            starts[each.trace_id] = min(started, starts.get(each.trace_id, started))
    groups = {each.id: _group(each.group_id) for each in told if isinstance(each, ToldTrace)}
    for each in told:
        if isinstance(each, ToldTrace):
            start = starts.get(each.id, now)
            yield IngestedSpan(each.id, each.id, None, each.workflow_name or "trace", start, start, groups[each.id])
        else:
            yield _span(each, now, groups.get(each.trace_id, {}), shows=shows)


def _span(told: ToldSpan, now: int, group: dict[str, Fact], *, shows: bool) -> IngestedSpan:
    data, start = told.span_data, _nanoseconds(told.started_at, now)
    shown = {"input.value": data.input, "output.value": data.output} if shows else {}
    return IngestedSpan(
        trace=told.trace_id,
        span=told.id,
        parent=told.parent_id or told.trace_id,
        name=_name(data),
        start=start,
        end=max(start, _nanoseconds(told.ended_at, now)),
        facts=_facts(data) | group,
        shown={name: bytes(raw).decode() for name, raw in shown.items() if raw != ABSENT},
        error=data.type if told.failed else None,
    )


def _name(data: SpanData) -> str:
    """The name of a span: its operation and its object."""
    if data.type == "custom" and data.name:
        return data.name
    whom = data.model if data.type == "generation" else data.name
    return " ".join(part for part in (OPERATIONS.get(data.type, data.type), whom) if part)


def _facts(data: SpanData) -> dict[str, Fact]:
    facts: dict[str, Fact] = {
        "openai_agents.span.type": data.type,
        "gen_ai.operation.name": OPERATIONS.get(data.type),
        "gen_ai.request.model": data.model,
        "gen_ai.response.id": data.response_id,
    }
    if data.type in ("agent", "function"):
        facts["gen_ai.agent.name" if data.type == "agent" else "gen_ai.tool.name"] = data.name
    if data.type == "generation" and data.usage is not None:
        facts["gen_ai.usage.input_tokens"] = data.usage.input_tokens
        facts["gen_ai.usage.output_tokens"] = data.usage.output_tokens
    return facts


def _group(id: str | None) -> dict[str, Fact]:
    """The conversation of a trace, where its group has an id that is no text."""
    return conversation(id) if id is not None and _PLAIN_ID.fullmatch(id) else {}


def _nanoseconds(time: datetime | None, now: int) -> int:
    """A time in nanoseconds of unix time, and now where there is none."""
    if time is None:
        return now
    past = utc(time) - EARLIEST
    return (past.days * 86_400 + past.seconds) * 1_000_000_000 + past.microseconds * 1_000
