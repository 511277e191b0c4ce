"""Sending spans: the SDK's exporter for OTLP over HTTP, whose failures are said once in a while, and by us.

It is called by the SDK's thread alone. What can't be sent is lost: spans are no reason to keep anybody waiting.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from service.logs import event

logger = logging.getLogger(__name__)

SAID_SECONDS = 60.0
"""How often it is said that spans are lost."""

_QUIET = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""The loggers of the SDK that say it each time, with the receiver's words."""


def otlp(url: str, headers: Mapping[str, str]) -> SpanExporter:
    """The exporter to an OTLP receiver, at this very URL. Its time is OTEL_EXPORTER_OTLP_TIMEOUT's, 10 s by default."""
    return OTLPSpanExporter(endpoint=url, headers=dict(headers))


class Sending(SpanExporter):
    """An exporter of which it is said once in a while how many spans it lost. `place` is where they should go."""

    def __init__(self, exporter: SpanExporter, place: str, now: Callable[[], float] = monotonic) -> None:
        self._exporter = exporter
        self._place = place
        self._now = now
        self._lost = 0
        self._said: float | None = None
        for name in _QUIET:
            logging.getLogger(name).setLevel(logging.CRITICAL)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See SpanExporter."""
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            if self._said is not None:
                event(logger, logging.INFO, "spans are sent again", url=self._place)
            self._said, self._lost = None, 0
            return result
        self._lost += len(spans)
        if self._said is None or self._now() - self._said >= SAID_SECONDS:
            event(logger, logging.WARNING, "spans could not be sent", url=self._place, spans=self._lost)
            self._said, self._lost = self._now(), 0
        return result

    def shutdown(self) -> None:
        """See SpanExporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See SpanExporter."""
        return self._exporter.force_flush(timeout_millis)
