"""The service as a request gets it: its parts, its tenants, and on whose behalf the request is made."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from service.engine.engines import Engines
from service.loans import Loans
from service.metrics.counters import Metrics
from service.pacing import Pacing
from service.ports import Check, Chore
from service.responses.pictures import PictureFetcher
from service.responses.running import Running
from service.responses.seal import Seals
from service.settings.core import CoreSettings
from service.settings.keys import Keys
from service.shares import Room
from service.spans import Tracer
from service.tenants.directory import Directory
from service.tenants.keyring import KeyRing
from service.tenants.limits import Allowance, Limiter
from service.tenants.records import Project
from service.tenants.usage import Tally
from service.tools.port import HostedTools
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.layout import Layout


class Tenants(msgspec.Struct, frozen=True):
    """The tenants of a service: who they are, what each may take, what it took, and whose turn it is."""

    keys: Keys
    """The API keys: the part of the settings that may change meanwhile."""
    key_ring: KeyRing | None
    """The keys in the store as far as they were presented; None where they open nothing."""
    directory: Directory
    """The projects, accounts and keys in the store."""
    limiter: Limiter
    tally: Tally
    """The usage: how much was spent, by whom and when."""
    pacing: Pacing
    """When a tenant's requests and jobs begin in this process."""


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
    seals: Seals
    metrics: Metrics
    tracer: Tracer
    """Traces requests and jobs; off by default."""
    layout: Layout
    """The record that its store keeps for all processes."""
    chores: tuple[Chore, ...]
    """The work of features beside requests."""
    checks: tuple[Check, ...] = ()
    """The looks at what features depend on."""


class Caller(msgspec.Struct, frozen=True):
    """On whose behalf a request is made: the tenant, and of the headers that came with it the W3C trace, the session
    and the user that a front end names, empty where there is none; the id of its key in the registry, empty where that
    has none, and what the registry has of its project.
    """

    tenant: str
    trace: tuple[tuple[str, str], ...] = ()
    session: str = ""
    user: str = ""
    key: str = ""
    project: Project | None = None
    scopes: tuple[str, ...] = ()
    """The scopes of its key; none is all of them."""
    allowance: Allowance | None = None
    """Its limits; None where nothing that it asks for is held against them."""
    response_id: str = ""
    """The id of the response, where it was chosen before; empty where any will do."""

    def may_use(self, names: Sequence[str]) -> bool:
        """Whether it may use the model of these names."""
        return self.project is None or self.project.may_use(names)
