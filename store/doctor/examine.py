"""Examination: what a Redis reports about itself, as far as the store depends on it. It changes nothing.

The facts are gathered here and judged in doctor.py. A fact that a server refuses to give is missing, never guessed.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from redis import exceptions as redis_errors
from redis.asyncio import RedisCluster

from store.errors import LayoutMismatch, StoreUnavailable
from store.keys import Keyspace
from store.layout import Layout, StoreRecord, Terms
from store.redis.address import AddressKind, parse
from store.redis.client import Client, connect
from store.redis.connection import Server

ASKED = ("appendfsync", "save", "busy-reply-threshold")
"""The settings that only CONFIG reports. Never ask it for more: a pattern would return passwords too."""

PINGS = 3
"""The fastest of so many tells how far away a server is; a single one tells how busy this machine is, too."""

Ask = Callable[..., Awaitable[Any]]
"""Sends a command to one node; the reply comes as redis-py's methods give it."""


@dataclass(frozen=True, slots=True)
class ExaminedServer:
    """The report of one server: the fields of INFO, of CLUSTER INFO, and of CONFIG, None where that is not permitted.

    `ahead_seconds` is how much its clock is ahead of this machine's at least, below 0 where it is behind; None where it
    doesn't say.
    """

    name: str
    shards: int
    ping_ms: float
    info: Mapping[str, Any]
    config: Mapping[str, str] | None = None
    cluster: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ahead_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Examined:
    """The servers with the shards, and by name why others did not answer."""

    nodes: tuple[ExaminedServer, ...]
    silent: Mapping[str, str]
    record: StoreRecord | None = None
    """The store's layout record, if it has one."""
    mismatch: LayoutMismatch | None = None
    """Why the store is not to be used with the settings."""


async def examine(
    url: str, prefix: str, shards: int, timeout_seconds: float, limits: Mapping[str, str] | None = None
) -> Examined:
    """Ask the server, the primary behind Sentinels, or every primary of a cluster, for `timeout_seconds` each.

    `limits` are those that all who use the store have to have in common, by the names of their settings. Raises
    StoreUnavailable when none can be found, ValueError or TypeError for a URL that can't be used.
    """
    keyspace = Keyspace(prefix, shards)
    client = connect(url, timeout_seconds=timeout_seconds)
    nodes: list[ExaminedServer] = []
    silent: dict[str, str] = {}
    server = Server(client, timeout_seconds=timeout_seconds, attempts=1)
    try:
        for name, held, ask in await _nodes(client, keyspace, timeout_seconds):
            try:
                async with _answering(timeout_seconds):
                    nodes.append(await _node(name, held, ask, parse(url).kind is AddressKind.CLUSTER))
            except StoreUnavailable as error:
                silent[name] = str(error)
        layout = Layout(server, keyspace, Terms(shards, limits=limits))
        record, mismatch = await _read_record(layout) if nodes else (None, None)
    finally:
        await server.close()
    return Examined(tuple(nodes), silent, record, mismatch)


async def _read_record(layout: Layout) -> tuple[StoreRecord | None, LayoutMismatch | None]:
    """The layout record as far as it can be read, and what it says against the settings."""
    try:
        return await layout.check(), None
    except LayoutMismatch as mismatch:
        return None, mismatch
    except StoreUnavailable:  # the node that has it is silent, or this user may not read it
        return None, None


async def _nodes(client: Client, keyspace: Keyspace, timeout_seconds: float) -> list[tuple[str, int, Ask]]:
    """Each server's name, how many shards it holds, and how to ask it."""
    if not isinstance(client, RedisCluster):
        ask = cast(Ask, client.execute_command)  # pyright: ignore[reportUnknownMemberType]
        return [("", keyspace.shards, ask)]
    async with _answering(timeout_seconds):
        await client.initialize()
    held = [client.get_node_from_key(keys.clock) for keys in keyspace.all_shards()]
    return [
        (node.name, held.count(node), partial(cast(Ask, client.execute_command), target_nodes=node))
        for node in client.get_primaries()
    ]


async def _node(name: str, shards: int, ask: Ask, in_cluster: bool) -> ExaminedServer:
    await _ping_ms(ask)  # it connects
    before = time.time()
    info = await _fields(ask, "INFO")
    after = time.time()
    return ExaminedServer(
        name=name,
        shards=shards,
        ping_ms=min([await _ping_ms(ask) for _ in range(PINGS)]),
        info=info,
        config=await _config(ask),
        cluster=await _fields(ask, "CLUSTER INFO") if in_cluster else {},
        ahead_seconds=ahead(info.get("server_time_usec"), before, after),
    )


def ahead(micros: object, before: float, after: float) -> float | None:
    """How much a clock is ahead that was read between two moments of ours; 0 where it may be right."""
    if not isinstance(micros, int):
        return None
    told = micros / 1_000_000
    return told - min(max(told, before), after)


async def _ping_ms(ask: Ask) -> float:
    """How long an answer takes. A server that can't write to its disk refuses even this; INFO says why."""
    start = time.perf_counter()
    with suppress(redis_errors.ResponseError):
        await ask("PING")
    return (time.perf_counter() - start) * 1000


async def _fields(ask: Ask, command: str) -> Mapping[str, Any]:
    """The reply's fields; none where this user has no permission."""
    try:
        return await ask(command)
    except redis_errors.NoPermissionError:
        return {}


async def _config(ask: Ask) -> Mapping[str, str] | None:
    """Those of the settings in ASKED that this server knows; None where CONFIG is not permitted."""
    found: dict[str, str] = {}
    try:
        for name in ASKED:
            found |= await ask("CONFIG GET", name)
    except redis_errors.ResponseError:  # not permitted, or renamed, as on many a managed server
        return None
    return found


@asynccontextmanager
async def _answering(timeout_seconds: float) -> AsyncGenerator[None]:
    """Turn the errors of a server that doesn't answer, or not in time, into StoreUnavailable."""
    try:
        async with asyncio.timeout(timeout_seconds):
            yield
    except TimeoutError as error:
        raise StoreUnavailable(f"it did not answer within {timeout_seconds} s") from error
    except (redis_errors.RedisError, redis_errors.RedisClusterException) as error:
        raise StoreUnavailable(str(error)) from error
