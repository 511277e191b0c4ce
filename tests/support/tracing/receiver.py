"""A receiver of OTLP over HTTP, as Phoenix or a collector is one: it keeps every span, and the bytes that it got."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from tests.support.waiting import until, wait_until

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
SECONDS = 20.0


@dataclass(frozen=True)
class Received:
    """A span as it came; times in nanoseconds."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    facts: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    """The trace and the span of each."""
    failed: bool
    words: str
    """What its status says."""
    service: str


@dataclass
class Receiver:
    """All that was received so far. With `gate` cleared requests wait for it."""

    spans: list[Received] = field(default_factory=list[Received])
    raw: list[bytes] = field(default_factory=list[bytes])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    gate: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    @property
    def text(self) -> bytes:
        return b"".join(self.raw)

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Received:
        """The one span of a name."""
        (span,) = self.named(name)
        return span

    def below(self, parent: Received) -> list[Received]:
        """The parts of a span, by when they began."""
        return sorted((span for span in self.spans if span.parent == parent.id), key=lambda span: span.start)

    async def until(self, name: str, count: int = 1) -> list[Received]:
        """The spans of a name, once there are so many."""
        await until(lambda: len(self.named(name)) >= count, SECONDS)
        return self.named(name)

    def wait_for(self, name: str, count: int = 1) -> list[Received]:
        wait_until(lambda: len(self.named(name)) >= count, SECONDS, f"no {name} among {[s.name for s in self.spans]}")
        return self.named(name)

    def take(self, body: bytes) -> None:
        self.raw.append(body)
        request = ExportTraceServiceRequest.FromString(body)
        for group in request.resource_spans:
            service = {each.key: each.value.string_value for each in group.resource.attributes}.get("service.name", "")
            for scope in group.scope_spans:
                self.spans += [_read(span, service) for span in scope.spans]


def _read(span: Any, service: str) -> Received:
    return Received(
        name=span.name,
        kind=KINDS[span.kind],
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        facts={each.key: _value(each.value) for each in span.attributes},
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        failed=span.status.code == 2,
        words=span.status.message,
        service=service,
    )


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    assert kind is not None
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port, until the end of the block."""
    receiver = Receiver()
    receiver.gate.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.gate.wait()
            receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
            receiver.take(body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing of it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
