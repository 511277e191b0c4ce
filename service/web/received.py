"""A request as its route gets it: what of this process it uses, its body, its caller, and answers that many give."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import NamedTuple, TypeVar, cast

from starlette.datastructures import QueryParams
from starlette.types import Receive

from service.api.events import Event
from service.background.follow import Following
from service.background.tasks import Background
from service.entrance import Entrance
from service.metrics.scrape import Exposition
from service.responses.make import NO_KEY, Claim
from service.responses.service import Service
from service.web.admission.slots import Admission
from service.web.body import read_body
from service.web.dialect import OPENAI, Dialect
from service.web.errors import JsonResponse
from service.web.event_stream import EventStream
from service.web.exchange import Admitted, Exchange
from service.web.idempotency import HEADER, claim, key_of
from service.web.queries import Query, empty, read_query

Q = TypeVar("Q", bound=Query)

EXCHANGE = "harmonium.exchange"


class Process(NamedTuple):
    """The parts of a process that routes use."""

    service: Service
    background: Background
    """Its work beside requests."""
    admission: Admission
    exposition: Exposition
    dialects: tuple[Dialect, ...] = (OPENAI,)
    """The dialects of the Responses API in which it answers, each under its own base URL."""
    places: Mapping[str, tuple[str, str]] = {}
    """Where to go in features from `GET /`: paths and their descriptions, by name."""

    @property
    def entrance(self) -> Entrance:
        return self.service.tenants.entrance


class Received:
    """One request."""

    def __init__(self, process: Process, exchange: Exchange, receive: Receive, place: Admitted | None = None) -> None:
        """`place` is that of a request which needs a key."""
        self.process, self.service = process, process.service
        self.exchange, self.tenant = exchange, exchange.tenant
        self.receive = receive
        self.admitted = cast(Admitted, place)
        """Its place, on the routes that need a key."""

    @property
    def parameters(self) -> QueryParams:
        return QueryParams(self.exchange.scope["query_string"])

    def query(self, kind: type[Q]) -> Q:
        """Its query, on a route that reads it by itself. Raises InvalidRequest."""
        return read_query(self.parameters, kind) if self.exchange.scope["query_string"] else empty(kind)

    def header(self, name: bytes) -> str:
        return self.exchange.headers.get(name, b"").decode("latin-1")

    async def body(self, *, text: bool = True, times: int = 1) -> bytes:
        """The whole body, JSON or any bytes without `text`, of `times` the usual bound. Raises ApiError, ClientGone."""
        settings = self.service.settings
        return await read_body(
            self.receive,
            self.exchange.headers.get(b"content-length"),
            limit=times * settings.max_body_bytes,
            seconds=settings.send_seconds,
            take=self.admitted.slot.take_body,
            text=text,
        )

    def preparing(self, size: int) -> AbstractAsyncContextManager[None]:
        """Waits until work on so many bytes may begin, such as making a prompt; it lasts until the end of the block."""
        return self.process.admission.preparing(self.tenant, size)

    def claim(self, body: bytes) -> AbstractAsyncContextManager[Claim]:
        """The claim on what it asks for, until the end of the block: once for all that have its Idempotency-Key.

        Raises ApiError for one that can't be a key; entering it ApiError, StoreUnavailable, ClientGone.
        """
        scope = self.exchange.scope
        if HEADER not in self.exchange.headers:
            return nullcontext(NO_KEY)
        asked = scope["path"], key_of(scope["headers"]) or b"", body
        return claim(self.service, self.exchange, asked, receive=self.receive, leaving=self.is_leaving)

    def is_leaving(self) -> bool:
        """Whether this process is about to end."""
        return self.process.background.stopping

    def with_room(self, content: object) -> JsonResponse:
        """An answer that stays in memory until its client has read it. Raises ApiError 503 where that is too much."""
        answer = content if isinstance(content, JsonResponse) else JsonResponse(content)
        self.admitted.slot.take_body(len(answer.body))
        return answer

    async def note(self, type: str, id: str, **data: object) -> None:
        """Have the audit log say that this request has done something, where there are projects. It never fails."""
        await self.process.entrance.note(self.exchange.entry, type, id, data or None)

    def follow(self, id: str, after: int = -1, *, begun: Sequence[Event] = (), obfuscate: bool) -> EventStream:
        """The events of a response behind number `after`, or from `begun` on. It needs a follower's slot."""
        service = self.service
        following = Following(
            service.jobs.log,
            service.store.listening,
            self.tenant,
            id,
            after,
            begun=begun,
            leaving=self.is_leaving,
            settled=lambda: service.store.settle(self.tenant, id),
        )
        return EventStream(following, self.admitted, service.settings, obfuscate=obfuscate)
