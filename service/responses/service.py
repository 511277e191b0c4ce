"""The service as a request gets it: its parts, its tenants, and on whose behalf the request is made."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from service.engine.engines import Engines
from service.engine.port import Sample
from service.entrance import Entrance, Entry
from service.loans import Loans
from service.metrics.counters import Metrics, Mode
from service.pacing import Pacing
from service.ports import Chore, ReadyCheck
from service.responses.attachments import NO_ATTACHMENTS, Attachments
from service.responses.output.machine import Machine
from service.responses.pictures import PictureFetcher
from service.responses.plan import Plan
from service.responses.readings import Readings
from service.responses.running import Running
from service.responses.seal import Seals
from service.responses.seen import Recogniser
from service.settings.core import CoreSettings
from service.settings.keys import Keys
from service.shares import Room
from service.spans import Span, Tracer
from service.tools.hosted import HostedTools
from service.tools.port import Runner
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.layout import Layout


class Tenants(msgspec.Struct, frozen=True):
    """The tenants of a service: who they are, what each may do and take, what it took, and whose turn it is."""

    entrance: Entrance
    pacing: Pacing
    """When a tenant's requests and jobs begin in this process."""

    @property
    def keys(self) -> Keys:
        """The API keys: the part of the settings that may change meanwhile."""
        return self.entrance.keys


class Tracing(NamedTuple):
    """The spans of a response that is traced: they stand around what its driver uses, and it knows nothing of them."""

    generating: Callable[[Sample, Span, Plan, Machine, Mode], Sample]
    """An engine's `sample` with a span around each generation."""
    calling: Callable[[Runner, Span, Plan], Runner]
    """Tools with a span around each call."""


class Service(msgspec.Struct, frozen=True):
    """The parts that every request needs: settings, the store with its jobs, the tenants, the engine, the tools."""

    settings: CoreSettings
    store: ConversationHistoryStore
    secret: Callable[[], Awaitable[bytes]]
    """The secret that all processes of the store share. Raises StoreUnavailable, and the errors of an archive."""
    loans: Loans
    """Gives back what tasks take of the store."""
    conversations: Conversations
    jobs: Jobs
    tenants: Tenants
    running: Running
    """The responses in the foreground that are made here."""
    engine: Engines
    toolbox: HostedTools
    pictured: Room
    """Room for the pictures of prompts that are at engines."""
    picture_fetcher: PictureFetcher
    readings: Readings
    """The models that don't speak Harmony."""
    seals: Seals
    metrics: Metrics
    tracer: Tracer
    """Traces requests and jobs; off by default."""
    tracing: Tracing | None
    """The spans within a response; None where nothing is traced."""
    layout: Layout
    """The record that its store keeps for all processes."""
    chores: tuple[Chore, ...]
    """The work of features beside requests."""
    recogniser: Recogniser | None = None
    """Recognises conversations by what they say; None where that isn't wanted."""
    checks: tuple[ReadyCheck, ...] = ()
    """The looks at what features depend on."""
    attachments: Attachments = NO_ATTACHMENTS
    """The files that requests name by their ids."""
    announces: bool = False
    """Whether the ends of background responses are announced."""
    keeps_ids: bool = False
    """Whether turns note what trajectories need beside their messages."""

    async def know_ids(self) -> None:
        """Have new ids say that this store has made them, once it has told its secret. Raises StoreUnavailable,
        ArchiveUnavailable, ArchiveUnfit, ArchiveForeign.
        """
        if not self.store.ids.proves:
            self.store.ids.prove_by(await self.secret())

    def said_after(self, said: bytes, output: Sequence[msgspec.Struct]) -> bytes:
        """The digest of a transcript once a response with this output has ended; empty where none is wanted."""
        return b"" if self.recogniser is None or not said else self.recogniser.digest_after(said, output)


class Caller(msgspec.Struct, frozen=True):
    """On whose behalf a request is made: who has entered, and of the headers that came with it the W3C trace, the
    session and the user that a front end names, empty where there is none.
    """

    entry: Entry
    trace: tuple[tuple[str, str], ...] = ()
    session: str = ""
    user: str = ""
    response_id: str = ""
    """The id of the response, where it was chosen before; empty where any will do."""

    @property
    def tenant(self) -> str:
        return self.entry.tenant
