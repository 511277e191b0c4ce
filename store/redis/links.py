"""Links: how one operation's commands reach a server, be it one, the primary behind Sentinels, or a cluster.

redis-py knows the addresses: its pools ask Sentinels for the primary, and its cluster client knows which node has
which slot. A link takes a connection from it and speaks on it directly, with commands packed in C
(docs/decisions/0021-connections-to-redis-are-our-own.md). A task that is cancelled between a command and its reply
closes the connection, so that nobody else can read that reply.

A failure that a retry may cure is raised as redis-py's ConnectionError or TimeoutError. Never retry a command here.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol, cast

import hiredis
from redis import exceptions as redis_errors
from redis.asyncio import RedisCluster
from redis.asyncio.connection import AbstractConnection

from store.redis.client import Client, PrimaryPool
from store.redis.conditions import NotPrimary, misled

Argument = str | bytes | int
Command = tuple[Argument, ...]

MAX_REDIRECTS = 4
"""How often one command follows a moved slot, before it counts as failed."""

REFRESH_SECONDS = 0.5
"""The least time between two requests for the nodes of a cluster: each makes every idle connection greet again."""

KEY_INDEXES = {"EVAL": 3, "EVALSHA": 3, "MEMORY": 2}
"""The index of a command's first key. In all other commands of the store it is the first argument."""

pack = cast(Callable[[Command], bytes], hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


class Connection(Protocol):
    """The used methods of a redis-py connection: it reconnects by itself, and closes when a command is cancelled."""

    async def connect(self) -> None: ...
    async def disconnect(self) -> None: ...
    async def send_packed_command(self, command: bytes, check_health: bool = True) -> None: ...
    async def read_response(self, *, timeout: float | None = None) -> Any: ...


class Node(Protocol):
    """The used methods of a cluster's node, which has a pool of its own in redis-py."""

    @property
    def name(self) -> str: ...
    def acquire_connection(self) -> Connection: ...
    def release(self, connection: Connection) -> None: ...
    async def disconnect_if_needed(self, connection: Connection) -> None: ...


class Link(Protocol):
    """Carries the commands of one operation."""

    async def row(self, commands: tuple[Command, ...], at: Argument | None, *, ahead: bool) -> list[Any]:
        """The replies to commands that go over one connection to the node that has the key `at`, by default that of the
        first command.

        Without `ahead` each is sent when the one before has its reply, and an error ends the row. With it all are sent
        at once, and the first error of them is raised. Raises ConnectionError or TimeoutError where a retry may help,
        and other errors of redis-py.
        """
        ...

    async def close(self) -> None:
        """Return the connection; called once, at the end."""
        ...

    def late(self) -> None:
        """Note that the operation ran out of time."""
        ...


class PooledLink:
    """One connection of a pool for all commands of an operation: a single server, or a primary behind Sentinels."""

    def __init__(self, pool: PrimaryPool) -> None:
        self._pool = pool
        self._connection: AbstractConnection | None = None
        self._doubts = pool.doubts
        """The pool's `doubts` when this connection was taken."""

    async def row(self, commands: tuple[Command, ...], at: Argument | None, *, ahead: bool) -> list[Any]:
        """The replies; one server has all keys. Raises NotPrimary for a server that is no primary any more."""
        if self._connection is None:
            self._doubts = self._pool.doubts
            self._connection = await self._pool.get_connection()
        try:
            return await _replies(cast(Connection, self._connection), commands, ahead=ahead)
        except (redis_errors.ConnectionError, redis_errors.TimeoutError):
            await self.close()  # a connection reconnects to where it was; the pool asks the Sentinels anew
            raise
        except redis_errors.ResponseError as refusal:
            if not misled(refusal):
                raise
            if self._doubts == self._pool.doubts:
                self._pool.replace()
            await self.close()  # which disconnects a doubted connection
            raise NotPrimary(str(refusal)) from refusal

    async def close(self) -> None:
        """Return the connection to its pool."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._pool.release(connection)

    def late(self) -> None:
        """Doubt all connections, not only the one that gave no answer: all may lead to a server that hangs, while the
        address leads to another one by now.
        """
        if self._connection is not None and self._doubts == self._pool.doubts:
            self._pool.doubt()


class ClusterLink:
    """A connection for each command, to the node that has its key."""

    def __init__(self, nodes: "Nodes") -> None:
        self._nodes = nodes
        self._node: Node | None = None

    async def row(self, commands: tuple[Command, ...], at: Argument | None, *, ahead: bool) -> list[Any]:
        """The replies of the key's node, also when its slot has moved; without any key, of one that stays the same."""
        key = _key(commands[0]) if at is None else at
        for _ in range(MAX_REDIRECTS):
            self._node = await self._nodes.of(key)
            try:
                return await _exchange(self._node, commands, ahead=ahead)
            except redis_errors.MovedError as moved:
                await self._nodes.move(moved)
            except redis_errors.AskError as elsewhere:  # the slot is moving, and these keys have moved
                return await self._ask_elsewhere(elsewhere, commands)
            except redis_errors.TryAgainError as error:
                raise redis_errors.ConnectionError(f"{key} is moving to another node: {error}") from error
            except (redis_errors.ConnectionError, redis_errors.TimeoutError, redis_errors.ClusterDownError) as error:
                await self._nodes.refresh(self._node.name)
                raise redis_errors.ConnectionError(f"node {self._node.name}: {error}") from error
        raise redis_errors.ConnectionError(f"no node has the slot of {key}, after {MAX_REDIRECTS} redirections")

    async def _ask_elsewhere(self, elsewhere: redis_errors.AskError, commands: tuple[Command, ...]) -> list[Any]:
        self._node = await self._nodes.at(elsewhere)
        try:
            return (await _exchange(self._node, (("ASKING",), *commands), ahead=False))[1:]
        except (redis_errors.TryAgainError, redis_errors.MovedError) as error:
            raise redis_errors.ConnectionError(f"slot {elsewhere.slot_id} is moving to another node") from error

    async def close(self) -> None:
        """Nothing: each command returns its connection."""

    def late(self) -> None:
        """Doubt the node that was asked last: one that hangs doesn't name its successor."""
        if self._node is not None:
            self._nodes.doubt(self._node.name)


class Nodes:
    """The nodes and their slots, as redis-py's client knows them, and when to ask the cluster again. Links share it."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._cluster = cluster
        self._refreshed = -REFRESH_SECONDS
        self._doubted: str | None = None

    async def of(self, key: Argument | None) -> Node:
        """The primary that has the key, or any that stays the same. Raises ConnectionError where none is known."""
        try:
            await self._cluster.initialize()
            if self._doubted is not None:
                await self.refresh(self._doubted)
            if key is None:
                return cast(Node, self._cluster.get_default_node())
            return cast(Node, self._cluster.get_node_from_key(cast(str, key)))
        except redis_errors.RedisClusterException as error:  # which is no RedisError
            raise redis_errors.ConnectionError(str(error)) from error

    async def move(self, moved: redis_errors.MovedError) -> None:
        """Note the node that a slot has moved to."""
        await self._cluster.nodes_manager.move_slot(moved)

    async def at(self, elsewhere: redis_errors.AskError) -> Node:
        """The node with an address that another node gave. Raises ConnectionError for one that nobody knows."""
        host, port = cast(tuple[str, int], elsewhere.node_addr)  # pyright: ignore[reportUnknownMemberType]
        node = self._cluster.get_node(host, port)
        if node is None:
            await self.refresh("")
            raise redis_errors.ConnectionError(f"{host}:{port} is new to the cluster")
        return cast(Node, node)

    def doubt(self, name: str) -> None:
        """Ask the others before the node is used again."""
        self._doubted = name

    async def refresh(self, name: str) -> None:
        """Ask the cluster for its nodes, the one called `name` last; not more often than REFRESH_SECONDS permits."""
        self._doubted = None
        now = time.monotonic()
        if now - self._refreshed < REFRESH_SECONDS:
            return
        self._refreshed = now
        try:
            await self._cluster.nodes_manager.initialize(last_failed_node_name=name)
        except redis_errors.RedisClusterException as error:
            raise redis_errors.ConnectionError(str(error)) from error


def links_of(client: Client) -> tuple[Callable[[], Link], int]:
    """The function that makes a link for each operation on the client's server, and how many there may be at once."""
    if isinstance(client, RedisCluster):
        nodes = Nodes(client)
        return lambda: ClusterLink(nodes), cast(int, client.get_connection_kwargs()["max_connections"])
    pool = client.connection_pool
    return lambda: PooledLink(cast(PrimaryPool, pool)), pool.max_connections


def _key(args: Command) -> Argument | None:
    """The key by which a command finds its node; None for one without arguments."""
    at = KEY_INDEXES.get(str(args[0]), 1)
    return args[at] if len(args) > at else None


async def _exchange(node: Node, commands: tuple[Command, ...], *, ahead: bool) -> list[Any]:
    """The replies to commands that belong on one connection."""
    connection = node.acquire_connection()
    try:
        await node.disconnect_if_needed(connection)
        return await _replies(connection, commands, ahead=ahead)
    finally:
        node.release(connection)


async def _replies(connection: Connection, commands: tuple[Command, ...], *, ahead: bool) -> list[Any]:
    replies: list[Any] = []
    if not ahead:
        for command in commands:
            await connection.send_packed_command(pack(command))
            replies.append(await connection.read_response())
        return replies
    await connection.send_packed_command(b"".join(map(pack, commands)))
    refusals: list[redis_errors.ResponseError] = []
    for _ in commands:
        try:
            replies.append(await connection.read_response())
        except redis_errors.ResponseError as refusal:  # the replies behind it are there, too
            refusals.append(refusal)
    if refusals:
        raise refusals[0]
    return replies
