"""The tracer over OpenTelemetry's SDK: which spans are kept, as what they are sent, and in which bounds.

    span ─▶ queue (bounded; a thread of its own) ─▶ OTLP over HTTP

A request is sampled as its client's `traceparent` says, or else by the ratio; an attempt at a background response as
its submission was. Spans are sent by the SDK's thread, and a receiver that is away, slow or full costs spans and
nothing else, which is said once in a while. Never export from the event loop. Imported only where a setting says where
spans go: OpenTelemetry takes a fifth of a second and 20 MB.

Where an operator wants texts, what was written is shown in the messages of OpenTelemetry's GenAI conventions. Items of
the API come in as JSON, and of all that they say no more goes on than a span may have: what is cut off ends in an
ellipsis. Source: https://github.com/open-telemetry/semantic-conventions-genai (gen-ai-input-messages.json).
"""

import asyncio
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import random
from time import monotonic, time_ns
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, TraceFlags, get_current_span, set_span_in_context
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import Tracer as SdkTracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.re import parse_env_headers
from opentelemetry.util.types import AttributeValue

from service.logs import event
from service.settings.sources import without
from service.spans import SCOPE, Fact, Headers, Span, SpanSide, Tracer

ELLIPSIS = "…"

MESSAGE_BYTES = 64
"""The size of a message beside its text."""

_ITEMS = msgspec.json.Decoder(list[dict[str, Any]])

_TEXTS = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")
"""The kinds of content parts that are text."""

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 3.0
"""How long a process that ends waits for its last spans to be sent."""

TEXT_BYTES = 8 * 1024
"""The most that one value of a trace has of what was written."""

MAX_ATTRIBUTES = 64
"""The most facts of one span."""

_IDS = RandomIdGenerator()
_PROPAGATOR = TraceContextTextMapPropagator()
_NOTHING = Context()

SAID_SECONDS = 60.0
"""How often it is said that spans are lost."""

_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")

_QUIET = (
    *("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal"),
    "urllib3.connectionpool",
)
"""The loggers of the SDK that say it each time, with the receiver's words, and of what it sends by, with its URL."""


def content_facts(
    side: Literal["input", "output"], items: bytes, limit: int, *, whole: bool = False
) -> dict[str, Fact]:
    """The facts of what was given or made: items as JSON, of at most about `limit` bytes. All have them as one value,
    and what isn't the `whole` around calls of models and tools has them as messages.
    """
    text = msgspec.json.encode(_messages(_ITEMS.decode(items), limit)).decode()
    value: dict[str, Fact] = {f"{side}.value": text, f"{side}.mime_type": "application/json"}
    return value if whole else value | {f"gen_ai.{side}.messages": text}


def shorten(text: str, limit: int) -> str:
    """A text of at most so many bytes, and an ellipsis where it was longer."""
    if len(text) <= limit // 4 or len(whole := text.encode("utf-8", "replace")) <= limit:
        return text
    return whole[:limit].decode("utf-8", "ignore") + ELLIPSIS


def _messages(items: Iterable[Mapping[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Items as messages, as many as there is room for."""
    messages: list[dict[str, Any]] = []
    for item in items:
        limit -= MESSAGE_BYTES
        if limit <= 0:
            break
        role, parts = _read(item)
        for part in parts:
            key = next(key for key in ("content", "arguments", "response") if key in part)
            part[key] = shorten(part[key], max(limit, 0))
            limit -= len(part[key])
        messages.append({"role": role, "parts": parts})
    return messages


def _read(item: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The role of an item's message, and its parts."""
    kind = str(item.get("type", "message"))
    if kind == "message":
        texts = _texts(item.get("content"))
        return str(item.get("role", "assistant")), [{"type": "text", "content": text} for text in texts]
    if kind == "reasoning":
        texts = _texts(item.get("content") or item.get("summary"))
        return "assistant", [{"type": "reasoning", "content": text} for text in texts]
    id = str(item.get("call_id") or item.get("id") or "")
    if kind.endswith("_output"):
        said = item.get("output")
        text = said if isinstance(said, str) else "\n".join(_texts(said))
        return "tool", [{"type": "tool_call_response", "id": id, "response": text}]
    name = str(item.get("name") or kind)
    given = item.get("arguments", item.get("input", item.get("code")))
    call = {"type": "tool_call", "id": id, "name": name, "arguments": given if isinstance(given, str) else ""}
    answer = item.get("output")
    more = [{"type": "tool_call_response", "id": id, "response": answer}] if isinstance(answer, str) else []
    return "assistant", [call, *more]


def _texts(content: Any) -> Iterator[str]:
    """The texts of a content, which is one itself or has parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:  # type: ignore[reportUnknownVariableType]
            if isinstance(part, dict) and part.get("type") in _TEXTS:  # type: ignore[reportUnknownMemberType]
                yield str(part.get("text") or part.get("refusal") or "")  # type: ignore[reportUnknownMemberType, reportUnknownArgumentType]


class TraceBounds(NamedTuple):
    """The share of all traces that is kept; and the most bytes of each text, 0 for no texts."""

    ratio: float
    text_bytes: int


class Skipped(Span):
    """A span that isn't sampled: nothing is told of it, but what is done elsewhere learns that."""

    def __init__(self, headers: Headers = ()) -> None:
        """`headers` are those of a trace that isn't kept already."""
        self._headers = headers

    @property
    def headers(self) -> Headers:
        """See Span."""
        if not self._headers:
            trace, span = _IDS.generate_trace_id(), _IDS.generate_span_id()
            self._headers = (("traceparent", f"00-{trace:032x}-{span:016x}-00"),)  # with the flags: not sampled
        return self._headers


class Kept(Span):
    """A span that is sent once it has ended."""

    kept = True

    def __init__(self, sdk: SdkTracer, span: OtelSpan, text_bytes: int) -> None:
        self._sdk = sdk
        self._span = span
        self._text_bytes = text_bytes
        self.shows = text_bytes > 0

    @property
    def headers(self) -> Headers:
        """See Span."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(self._span, _NOTHING))
        return tuple(carrier.items())

    def child(
        self,
        name: str,
        kind: SpanSide = SpanSide.INTERNAL,
        facts: Mapping[str, Fact] | None = None,
        *,
        linked: Headers = (),
    ) -> Span:
        """See Span."""
        within = set_span_in_context(self._span, _NOTHING)
        span = self._sdk.start_span(
            name, within, SpanKind(kind.value), attributes=_attributes_of(facts or {}), links=_links(linked)
        )
        return Kept(self._sdk, span, self._text_bytes)

    def rename(self, name: str) -> None:
        """See Span."""
        self._span.update_name(name)

    def note(self, facts: Mapping[str, Fact]) -> None:
        """See Span."""
        self._span.set_attributes(_attributes_of(facts))

    def show_input(self, items: bytes, instructions: str | None = None, *, whole: bool = False) -> None:
        """See Span."""
        if self.shows:
            self.note(content_facts("input", items, self._text_bytes, whole=whole))
            if instructions and not whole:
                parts = [{"type": "text", "content": shorten(instructions, self._text_bytes)}]
                self.note({"gen_ai.system_instructions": msgspec.json.encode(parts).decode()})

    def show_output(self, items: bytes, *, whole: bool = False) -> None:
        """See Span."""
        if self.shows:
            self.note(content_facts("output", items, self._text_bytes, whole=whole))

    def fail(self, kind: str, *, fault: bool = True) -> None:
        """See Span."""
        self._span.set_attribute("error.type", kind)
        if fault:
            self._span.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        """See Span. A second time does nothing."""
        if self._span.is_recording():
            self._span.end()


class OtelTracer(Tracer):
    """Traces what is sampled. `close` sends what waits."""

    on = True

    def __init__(self, send: SpanExporter, bounds: TraceBounds, *, name: str, version: str) -> None:
        """`name` and `version` are the service's; the SDK adds what OTEL_RESOURCE_ATTRIBUTES says of it."""
        self._bounds = bounds
        self._processor = BatchSpanProcessor(send)  # bounded by OTEL_BSP_*, which the SDK reads itself
        resource = Resource.create({"service.name": name, "service.version": version})
        limits = SpanLimits(max_attributes=MAX_ATTRIBUTES, max_links=1, max_events=0)
        provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, span_limits=limits)
        provider.add_span_processor(self._processor)
        self._sdk = provider.get_tracer(SCOPE, version)

    def request(self, method: str, parent: Headers) -> Span:
        """See Tracer."""
        if not self._keeps(parent):
            return Skipped(parent)
        within = _PROPAGATOR.extract(dict(parent), _NOTHING) if parent else _NOTHING
        return Kept(self._sdk, self._sdk.start_span(method, within, SpanKind.SERVER), self._bounds.text_bytes)

    def attempt(self, submitted: Headers, facts: Mapping[str, Fact], *, seconds: float) -> Span:
        """See Tracer."""
        if not self._keeps(submitted):
            return Skipped()
        span = self._sdk.start_span(
            "attempt",
            _NOTHING,
            SpanKind.CONSUMER,
            attributes=_attributes_of(facts),
            links=_links(submitted),
            start_time=time_ns() - int(seconds * 1e9),
        )
        return Kept(self._sdk, span, self._bounds.text_bytes)

    def _keeps(self, before: Headers) -> bool:
        """Whether a trace is kept: as what came `before` it was, or else by chance."""
        if before:
            return int(before[0][1][-2:], 16) & TraceFlags.SAMPLED > 0
        return random() < self._bounds.ratio

    async def close(self) -> None:
        """See Tracer."""
        closing = threading.Thread(target=self._processor.shutdown, name="last spans", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_SECONDS)
        if closing.is_alive():
            event(logger, logging.WARNING, "the last spans were not sent before the end", limit_seconds=CLOSE_SECONDS)


def open_tracer(url: str, headers: str, bounds: TraceBounds, *, name: str, version: str) -> Tracer:
    """The tracer that sends its spans to an OTLP receiver: to this very URL, with headers as Sending has them."""
    return OtelTracer(Sending(url, headers), bounds, name=name, version=version)


def _attributes_of(facts: Mapping[str, Fact]) -> dict[str, AttributeValue]:
    return {name: fact for name, fact in facts.items() if fact is not None}


def _links(headers: Headers) -> Sequence[Link]:
    """A link to what such headers name, if they name something."""
    if not headers:
        return ()
    linked = get_current_span(_PROPAGATOR.extract(dict(headers), _NOTHING)).get_span_context()
    return [Link(linked)] if linked.is_valid else ()


class Sending(OTLPSpanExporter):
    """An exporter of which it is said once in a while how many spans it lost."""

    def __init__(self, url: str, headers: str) -> None:
        """`headers` are as OTEL_EXPORTER_OTLP_HEADERS has them; the time to send is OTEL_EXPORTER_OTLP_TIMEOUT's.

        The exporter would add the environment's headers, which may be keys for another URL: it is made without these.
        """
        with without(_HEADERS):
            super().__init__(endpoint=url, headers=dict(parse_env_headers(headers, liberal=True)))
        parts = urlsplit(url)
        self._place = f"{parts.scheme}://{parts.netloc}"
        self._lost = 0
        self._said: float | None = None
        for name in _QUIET:
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        result = super().export(spans)
        if result is SpanExportResult.SUCCESS:
            if self._said is not None:
                event(logger, logging.INFO, "the collector accepts spans again", url=self._place)
            self._said, self._lost = None, 0
            return result
        self._lost += len(spans)
        if self._said is None or monotonic() - self._said >= SAID_SECONDS:
            event(logger, logging.WARNING, "the collector did not accept spans", url=self._place, spans=self._lost)
            self._said, self._lost = monotonic(), 0
        return result
