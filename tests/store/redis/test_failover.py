"""Failovers, behind one address and by Sentinels: who is primary now is found, and everybody leaves the connections to
the former one that stay open.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from redis import exceptions as redis_errors

from store.errors import NotFound, StoreReadOnly, StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.listening import Listening
from store.redis.connection import Server, connect
from tests.support.store.counted import usage
from tests.support.store.link import Link, link
from tests.support.store.operations import OPERATIONS
from tests.support.store.sample import TENANT, grow, said, turn
from tests.support.store.servers import PLAIN, SERVICE, Process, Watched, cluster, eventually, sentinels, server
from tests.support.store.talkers import HEALED_SECONDS, talking
from tests.support.waiting import until as soon

CONNECTIONS = 8
TALKERS = 16


class Pair(NamedTuple):
    """A primary, and the replica that takes its place."""

    primary: Process
    replica: Process

    def fail_over(self) -> None:
        """The replica is the primary from now on, and the primary its replica."""
        self.replica.ask("REPLICAOF", "NO", "ONE")
        self.primary.ask("REPLICAOF", "127.0.0.1", self.replica.port)


@pytest.fixture
def pair(primary_and_replica: tuple[Process, Process]) -> Pair:
    return Pair(*primary_and_replica)


@pytest.fixture
async def address(pair: Pair) -> AsyncIterator[Link]:
    """The address of whoever is primary."""
    async with link(pair.primary.port) as made:
        yield made


def store_at(address: Link, seconds: float = 2.0) -> ConversationHistoryStore:
    return ConversationHistoryStore(connect(address.url, max_connections=CONNECTIONS), timeout_seconds=seconds)


async def fill(store: ConversationHistoryStore, address: Link, target: Process) -> None:
    """Open all connections that the store may have."""
    (id,) = await grow(store, "one")
    await asyncio.gather(*(said(store, id) for _ in range(4 * CONNECTIONS)))
    assert address.leading_to(target.port) == CONNECTIONS


async def test_connections_that_stay_open_to_a_former_primary_are_left_at_the_first_refusal(
    pair: Pair, address: Link
) -> None:
    store = store_at(address)
    await fill(store, address, pair.primary)
    (id,) = await grow(store, "one")
    pair.primary.ask("WAIT", 1, 5000)
    pair.fail_over()
    address.target = pair.replica.port
    (reply,) = await grow(store, "two", parent=id)
    assert await said(store, reply) == ["one", "two"]
    await asyncio.gather(*(said(store, reply) for _ in range(4 * CONNECTIONS)))
    await soon(lambda: address.leading_to(pair.primary.port) == 0)
    assert address.leading_to(pair.replica.port) <= CONNECTIONS
    await store.close()


async def test_a_failover_under_load_loses_and_doubles_nothing_that_was_acknowledged(pair: Pair, address: Link) -> None:
    store = store_at(address)
    async with talking(store, TALKERS) as talkers:
        in_step_and_quiet(pair.primary)
        pair.fail_over()
        pair.primary.ask("CLIENT", "UNPAUSE")
        address.target = pair.replica.port
        await talkers.grown(2)
    assert int(pair.replica.ask("HGET", "harmonium:{00}:usage", "responses")) == talkers.turns
    await store.close()


async def test_a_failover_of_sentinels_under_load_loses_and_doubles_nothing_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    with sentinels(tmp_path) as watched:
        store = ConversationHistoryStore(connect(watched.url, max_connections=CONNECTIONS))
        failover = ("SENTINEL", "FAILOVER", SERVICE)
        async with talking(store, TALKERS) as talkers:
            in_step_and_quiet(watched.primary)
            await soon(lambda: watched.sentinel.ask(*failover) == "OK", passing=redis_errors.RedisError)
            await soon(lambda: "master" in watched.replica.ask("ROLE"))
            watched.primary.ask("REPLICAOF", "127.0.0.1", watched.replica.port)  # what the Sentinel does 8 s later
            watched.primary.ask("CLIENT", "UNPAUSE")
            await talkers.grown(2)
        assert int(watched.replica.ask("HGET", "harmonium:{00}:usage", "responses")) == talkers.turns
        await store.close()


async def test_a_failover_of_a_cluster_under_load_loses_and_doubles_nothing_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path, replicas=True, node_timeout_ms=2_000) as found:
        store = ConversationHistoryStore(connect(found.url, max_connections=CONNECTIONS), shards=16)
        async with talking(store, TALKERS) as talkers:
            for replica in found.replicas:
                replica.ask("CLUSTER", "FAILOVER")
                await soon(lambda replica=replica: "master" in replica.ask("ROLE"))
                await talkers.grown(2)
        assert (await usage(store)).responses == talkers.turns
        await store.close()


def in_step_and_quiet(primary: Process) -> None:
    """Let no write in for a while, so that the replica gets all that was acknowledged before it takes over."""
    primary.ask("CLIENT", "PAUSE", 10_000, "WRITE")
    assert primary.ask("WAIT", 1, 5000) == 1


async def test_listeners_leave_a_former_primary_too(pair: Pair, address: Link) -> None:
    redis = connect(address.url, max_connections=CONNECTIONS)
    store, listening = ConversationHistoryStore(redis), Listening(redis)
    async with listening.channel("channel") as listener:
        pair.fail_over()
        pair.primary.ask("REPLICAOF", "127.0.0.1", 1)  # so that it hears nothing of what is published
        with pytest.raises(StoreReadOnly):
            await grow(store, "one")
        address.target = pair.replica.port
        await grow(store, "one")
        assert await listener.messages(HEALED_SECONDS) is None  # some may have been missed, until now
        pair.replica.ask("SPUBLISH", "channel", "heard")
        assert await listener.messages(HEALED_SECONDS) == [b"heard"]
    await listening.close()
    await store.close()


async def test_a_full_server_is_used_over_one_connection_and_nobody_waits_there_for_replicas(tmp_path: Path) -> None:
    with server(tmp_path, *PLAIN) as full:
        store = Server(connect(f"redis://{full.address}"), timeout_seconds=2.0, attempts=3)
        await store.command("SET", "key", "value")
        full.ask("CONFIG", "SET", "maxclients", 1)
        assert await store.command("MGET", "key") == [b"value"]
        asking = asyncio.create_task(store.row(("GET", "key"), ("WAIT", 1, 0)))
        while not asking.done():
            assert await store.command("GET", "key") == b"value"
        with pytest.raises(StoreUnavailable, match="accepts no more connections"):
            await asking
        await store.close()


REFUSALS = {
    "a replica": (("REPLICAOF", "127.0.0.1", 1), ("REPLICAOF", "NO", "ONE")),
    "too few replicas": (("CONFIG", "SET", "min-replicas-to-write", 1), ("CONFIG", "SET", "min-replicas-to-write", 0)),
}


@pytest.mark.parametrize(("refuse", "accept"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_server_that_takes_no_writes_is_read_and_not_ready(
    tmp_path: Path, refuse: tuple[str, ...], accept: tuple[str, ...]
) -> None:
    with server(tmp_path, *PLAIN) as one:
        store = ConversationHistoryStore(connect(f"redis://{one.address}"), shards=4)
        (id,) = await grow(store, "one")
        one.ask("FUNCTION", "FLUSH")  # as in a server that this build has never written to
        one.ask(*refuse)
        with pytest.raises(StoreReadOnly):
            await store.check()
        with pytest.raises(StoreReadOnly):
            await grow(store, "two", parent=id)
        assert (await store.find(TENANT, id)).response == turn(id, text="one").response
        assert await store.lineage(TENANT, id) == (id,)
        assert len(await store.items(TENANT, [id])) == 1
        with pytest.raises(NotFound):
            await store.find(TENANT, store.new_id())
        one.ask(*accept)
        await store.check()
        await grow(store, "two", parent=id)
        await store.close()


async def test_a_server_that_can_not_save_is_read_and_not_ready(tmp_path: Path) -> None:
    with server(tmp_path, "--save", "3600 1000000", "--dbfilename", "dump.rdb") as one:
        store = ConversationHistoryStore(connect(f"redis://{one.address}"))
        (id,) = await grow(store, "one")
        (tmp_path / str(one.port) / "dump.rdb").mkdir()  # a file can't be put in its place
        one.ask("BGSAVE")
        with pytest.raises(StoreReadOnly, match="can't save to its disk"):
            await soon(store.check, wanted=lambda _: False)
        assert (await store.find(TENANT, id)).status == "completed"
        (tmp_path / str(one.port) / "dump.rdb").rmdir()
        one.ask("BGSAVE")
        await eventually(lambda: grow(store, "two", parent=id), StoreUnavailable)
        await store.close()


LIMIT_SECONDS = 3.0
GRACE_SECONDS = 10.0


async def test_every_operation_works_through_a_sentinel(watched: Watched) -> None:
    store = ConversationHistoryStore(connect(watched.url, timeout_seconds=8.0), timeout_seconds=15.0)
    for operation in OPERATIONS.values():
        (id,) = await grow(store, "one")
        await operation(store, id)
    await store.close()
    assert int(watched.primary.ask("DBSIZE")) > 0


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hanging"])
async def test_a_primary_that_is_gone_is_replaced(watched: Watched, end: signal.Signals) -> None:
    store = ConversationHistoryStore(connect(watched.url), timeout_seconds=LIMIT_SECONDS)
    (id,) = await grow(store, "one")
    watched.primary.ask("WAIT", 1, 5000)
    os.kill(watched.primary.process.pid, end)
    start = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.get(TENANT, id)
    assert time.monotonic() - start < LIMIT_SECONDS + GRACE_SECONDS
    await eventually(lambda: said(store, id), StoreUnavailable)
    (reply,) = await grow(store, "two", parent=id)
    assert await said(store, reply) == ["one", "two"]
    await store.close()


async def test_sentinels_have_users_of_their_own(watched: Watched) -> None:
    watched.sentinel.ask("ACL", "SETUSER", "guard", "on", ">sesame", "+sentinel|masters", "+client|setinfo")
    watched.sentinel.ask("ACL", "SETUSER", "default", "off")
    for options, admitted in (("sentinel_username=guard&sentinel_password=sesame", True), ("", False)):
        server = Server(connect(f"{watched.url}?{options}"), timeout_seconds=5.0, attempts=1)
        if admitted:
            async with server.operation() as operation:
                assert await operation.command("ROLE")
        else:
            with pytest.raises(StoreUnavailable, match="No master found"):
                async with server.operation() as operation:
                    await operation.command("ROLE")
        await server.close()
