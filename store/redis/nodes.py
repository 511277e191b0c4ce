"""Nodes: which of a cluster's nodes gets a row of commands, through slots that move and nodes that are replaced.

redis-py's cluster client knows which node has which slot; the rows go over our own wires to it (wire.py). A failure
that a retry may cure is raised as redis-py's ConnectionError or TimeoutError. Never retry a command here.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from redis import exceptions as redis_errors
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from store.redis.client import Client, PrimaryPool
from store.redis.conditions import Unwelcome
from store.redis.wire import Argument, Command, Wires

MAX_REDIRECTS = 4
"""How often one command follows a moved slot, before it counts as failed."""

REFRESH_SECONDS = 0.5
"""The least time between two requests for the nodes of a cluster: each makes every idle connection greet again."""

KEY_INDEXES = {"EVAL": 3, "FCALL": 3, "MEMORY": 2}
"""The index of a command's first key. In all other commands of the store it is the first argument."""


class ClusterWires:
    """The wires to each node of a cluster."""

    def __init__(self, cluster: RedisCluster) -> None:
        self.most = cast(int, cluster.get_connection_kwargs()["max_connections"])
        self._cluster = cluster
        self._nodes = Nodes(cluster)
        self._wires: dict[str, Wires] = {}

    async def row(self, commands: tuple[Command, ...], at: Argument | None, *, ahead: bool) -> list[Any]:
        """As Wires.row, to the node that has the key `at`, by default that of the first command, also when its slot has
        moved; without any key, to one that stays the same.
        """
        key = key_of(commands[0]) if at is None else at
        for _ in range(MAX_REDIRECTS):
            node = await self._nodes.of(key)
            try:
                return await (await self._to(node)).row(commands, ahead=ahead)
            except redis_errors.MovedError as moved:
                await self._nodes.move(moved)
            except redis_errors.AskError as elsewhere:  # the slot is moving, and these keys have moved
                return await self._ask_elsewhere(elsewhere, commands)
            except redis_errors.TryAgainError as error:
                raise redis_errors.ConnectionError(f"{key} is moving to another node: {error}") from error
            except Unwelcome as full:
                raise Unwelcome(f"node {node.name}: {full}") from full
            except (redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.ClusterDownError) as error:
                await self._nodes.refresh(node.name)
                raise redis_errors.ConnectionError(f"node {node.name}: {error}") from error
        raise redis_errors.ConnectionError(f"no node has the slot of {key}, after {MAX_REDIRECTS} redirections")

    async def _ask_elsewhere(self, elsewhere: redis_errors.AskError, commands: tuple[Command, ...]) -> list[Any]:
        """The reply of the node to which a slot is moving. Other keys of a row may still be at the first one."""
        with suppress(redis_errors.TryAgainError, redis_errors.MovedError):
            wires = await self._to(await self._nodes.at(elsewhere))
            if len(commands) == 1:
                return (await wires.row((("ASKING",), *commands), ahead=True))[1:]
        raise redis_errors.ConnectionError(f"slot {elsewhere.slot_id} is moving to another node") from elsewhere

    async def _to(self, node: ClusterNode) -> Wires:
        if (wires := self._wires.get(node.name)) is None:
            wires = self._wires[node.name] = Wires(connector(node), self.most)
            known = {node.name, *(each.name for each in self._cluster.get_nodes())}
            gone = [self._wires.pop(name) for name in self._wires.keys() - known]
            await asyncio.gather(*(each.close() for each in gone))
        return wires

    def late(self, command: Command, at: Argument | None, seconds: float) -> None:
        """Doubt the node, too: one that hangs doesn't name its successor."""
        with suppress(redis_errors.RedisClusterException, AttributeError):  # where none is known yet
            name = self._nodes.node_known(key_of(command) if at is None else at).name
            self._nodes.doubt(name)
            if (wires := self._wires.get(name)) is not None:
                wires.late(command, at, seconds)

    async def close(self) -> None:
        self._nodes.closed = True
        await asyncio.gather(*(each.close() for each in self._wires.values()))


class Nodes:
    """The nodes and their slots, as redis-py's client knows them, and when to ask the cluster again."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._cluster = cluster
        self.closed = False
        self._refreshed = -REFRESH_SECONDS
        self._doubted: str | None = None

    async def of(self, key: Argument | None) -> ClusterNode:
        """The primary that has the key, or any that stays the same. Raises ConnectionError where none is known."""
        if self.closed:
            raise redis_errors.ConnectionError("closed")
        try:
            await self._cluster.initialize()
            if self._doubted is not None:
                await self.refresh(self._doubted)
            return self.node_known(key)
        except redis_errors.RedisClusterException as error:  # which is no RedisError
            raise redis_errors.ConnectionError(str(error)) from error

    def node_known(self, key: Argument | None) -> ClusterNode:
        """As `of`, by what is known now. Raises RedisClusterException."""
        if key is None:
            return self._cluster.get_default_node()
        return cast(ClusterNode, self._cluster.get_node_from_key(cast(str, key)))

    async def move(self, moved: redis_errors.MovedError) -> None:
        await self._cluster.nodes_manager.move_slot(moved)

    async def at(self, elsewhere: redis_errors.AskError) -> ClusterNode:
        """The node with an address that another node gave. Raises ConnectionError for one that nobody knows."""
        host, port = cast(tuple[str, int], elsewhere.node_addr)  # pyright: ignore[reportUnknownMemberType]
        node = self._cluster.get_node(host, port)
        if node is None:
            await self.refresh("")
            raise redis_errors.ConnectionError(f"{host}:{port} is new to the cluster")
        return node

    def doubt(self, name: str) -> None:
        """Ask the others before the node is used again."""
        self._doubted = name

    async def refresh(self, name: str) -> None:
        """Ask the cluster for its nodes, the one called `name` last; not more often than REFRESH_SECONDS permits."""
        self._doubted = None
        now = time.monotonic()
        if self.closed or now - self._refreshed < REFRESH_SECONDS:
            return
        self._refreshed = now
        try:
            await self._cluster.nodes_manager.initialize(last_failed_node_name=name)
        except redis_errors.RedisClusterException as error:
            raise redis_errors.ConnectionError(str(error)) from error


def connector(node: ClusterNode) -> Callable[[], AbstractConnection]:
    """A function that makes a connection to a node, without redis-py's retries."""
    options: dict[str, Any] = {**node.connection_kwargs, "retry": Retry(NoBackoff(), 0)}
    return lambda: node.connection_class(**options)


def wires_to(client: Client) -> Wires | ClusterWires:
    """The wires to the client's server, or to each node of its cluster."""
    if isinstance(client, RedisCluster):
        return ClusterWires(client)
    pool = cast(PrimaryPool, client.connection_pool)  # which asks the Sentinels for each connection, if any
    return Wires(pool.make_connection, pool.max_connections, pool.replaced)


def key_of(command: Command) -> Argument | None:
    """The key by which a command finds its node; None for one without arguments."""
    at = KEY_INDEXES.get(str(command[0]), 1)
    return command[at] if len(command) > at else None
