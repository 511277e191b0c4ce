"""The service in the test's own event loop, on a real port, over an engine that plays a script.

For what can't be seen or caused from outside: the tokens that an engine got, the moment at which its work was
stopped, its faults. Everything but the engine is what `harmonium serve` runs.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import uvicorn
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from service.app import create_app
from service.background.timing import TIMING, Timing
from service.commands.serve import KEEP_ALIVE_SECONDS, listen, socket_paths, socket_protocol
from service.engine.port import Engine, ModelCard
from service.harmony.tokens import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START, encode
from service.process import Compose, Settings
from service.web.http_protocol import BoundedHttpProtocol, ConnectionLimits
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support.engine.scripted import ScriptedEngine, ScriptSource
from tests.support.service.process import MODEL
from tests.support.waiting import until

CARD = ModelCard(MODEL, 0, 131_072)

START_SECONDS = 30.0
"""How long the service may take to start: a sandbox tries its sessions first."""

GRACEFUL_SECONDS = 2
"""For how long what is under way may go on when the service stops."""


@dataclass(frozen=True)
class Inside:
    """A running service: where it is, and its own store, to look at."""

    url: str
    store: ConversationHistoryStore

    def client(self, key: str = "none") -> AsyncOpenAI:
        """The official client, which never tries twice."""
        http = DefaultAsyncHttpxClient(trust_env=False, verify=False)  # to load certificates takes 20 ms
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=30, http_client=http)

    def http(self) -> httpx.AsyncClient:
        """A plain HTTP client, for what no SDK would send."""
        return httpx.AsyncClient(base_url=self.url, timeout=30, trust_env=False, verify=False)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


class _Server(uvicorn.Server):
    """Uvicorn's, which looks ten times a second whether it should stop; this one is told."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.told = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit as error:  # it would end pytest's own process amid its fixtures
            raise RuntimeError("the service does not start; its log says why") from error

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.told.wait()
        self.should_exit = True


@asynccontextmanager
async def serving(
    settings: Settings,
    engine: Engine | None = None,
    timing: Timing = TIMING,
    *,
    port: int = 0,
    compose: Compose | None = None,
) -> AsyncIterator[Inside]:
    """The service of `settings`, over `engine` where it is given, until the end of the block.
    `port` is one that is free, or 0 for any; `compose` changes the parts at the end.
    """
    listener = listen("127.0.0.1", port)
    config = uvicorn.Config(
        create_app(settings, engine=engine, compose=compose, timing=timing),
        http=BoundedHttpProtocol,
        ws=socket_protocol(),
        ws_max_size=settings.max_body_bytes,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=GRACEFUL_SECONDS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,  # uvicorn's own is as long as clients keep one, so these race
    )
    config.connection_limits = ConnectionLimits(send_seconds=settings.send_seconds)  # type: ignore[attr-defined]
    config.socket_paths = socket_paths()  # type: ignore[attr-defined]
    server = _Server(config)
    task = asyncio.create_task(server.serve([listener]))
    store = ConversationHistoryStore(connect(settings.redis_url), prefix=settings.redis_prefix)
    try:
        await until(lambda: server.started or task.done(), START_SECONDS)
        yield Inside(f"http://127.0.0.1:{listener.getsockname()[1]}", store)
    finally:
        server.told.set()
        await task
        await store.close()


def scripted(*scripts: ScriptSource) -> ScriptedEngine:
    """An engine that plays `scripts`, one for each call, the last one again and again."""
    return ScriptedEngine(CARD, *scripts)


def thought(text: str) -> list[int]:
    """A whole message of reasoning, as the model samples it after a prompt."""
    return [CHANNEL, *encode("analysis"), MESSAGE, *encode(text), END]


def opened(text: str) -> list[int]:
    """The beginning of an answer that is not yet over."""
    return [CHANNEL, *encode("final"), MESSAGE, *encode(text)]


def answer(text: str) -> list[int]:
    """A whole answer, right after a prompt."""
    return [*opened(text), RETURN]


def then(ids: list[int]) -> list[int]:
    """The same message, where it isn't the first: it opens with its role."""
    return [START, *encode("assistant"), *ids]


def called(name: str, arguments: str) -> list[int]:
    """A whole call of a function."""
    header = [
        *encode(f" to=functions.{name}"),
        CHANNEL,
        *encode("commentary"),
        *encode(" "),
        CONSTRAIN,
        *encode("json"),
    ]
    return [*header, MESSAGE, *encode(arguments), CALL]
