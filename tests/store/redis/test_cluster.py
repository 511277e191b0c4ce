"""A cluster: shards on several nodes, slots that move, nodes that die, hang, are replaced and come back."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from redis import Redis

from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.history.idempotency import FoundRequest, KeyedRequests
from store.redis.connection import connect
from tests.support.store.counted import usage
from tests.support.store.operations import OPERATIONS
from tests.support.store.sample import TENANT, grow, said, turn
from tests.support.store.servers import Cluster, Process, cluster, eventually
from tests.support.store.talkers import talking
from tests.support.waiting import wait_until

SHARDS = 16
LIMIT_SECONDS = 2.0
GRACE_SECONDS = 10.0
NODE_TIMEOUT_MS = 3000
FEW_SHARDS = 6
TALKERS = 8


@pytest.fixture
async def store(nodes: Cluster, prefix: str) -> AsyncIterator[ConversationHistoryStore]:
    """A store with shards on all of its nodes."""
    store = ConversationHistoryStore(connect(nodes.url), prefix=prefix, shards=SHARDS, timeout_seconds=15.0)
    yield store
    await store.close()


def clock(prefix: str, id: str) -> str:
    """A key of the turn's shard."""
    return f"{prefix}:{{{id[5:7]}}}:clock"


async def on_each(store: ConversationHistoryStore, found: Cluster, prefix: str) -> dict[int, str]:
    """A turn on every primary, by that node's port."""
    ids: dict[int, str] = {}
    while len(ids) < len(found.primaries):
        (id,) = await grow(store, "one")
        ids[found.owner(clock(prefix, id)).port] = id
    return ids


@pytest.mark.parametrize("name", OPERATIONS)
async def test_every_operation_works_on_every_node(
    nodes: Cluster, store: ConversationHistoryStore, prefix: str, name: str
) -> None:
    for id in (await on_each(store, nodes, prefix)).values():
        await OPERATIONS[name](store, id)


async def test_a_slot_that_moves_at_once_is_followed_by_everybody(tmp_path: Path, prefix: str) -> None:
    with cluster(tmp_path) as found:
        store = ConversationHistoryStore(connect(found.url), prefix=prefix, timeout_seconds=15.0)
        (id,) = await grow(store, "one")
        source, target = ends(found, clock(prefix, id))
        slot = source.ask("CLUSTER", "KEYSLOT", clock(prefix, id))
        source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.ask("CLUSTER", "MYID"))
        while not target.ask("CLUSTER", "COUNTKEYSINSLOT", slot):
            assert await asyncio.gather(*(said(store, id) for _ in range(8))) == [["one"]] * 8
        (other,) = await grow(store, "two", parent=id)
        assert await said(store, other) == ["one", "two"]
        await store.close()


async def test_a_slot_that_moves_key_by_key_is_unavailable_meanwhile_and_then_followed(
    tmp_path: Path, prefix: str
) -> None:
    with cluster(tmp_path) as found:
        store = ConversationHistoryStore(connect(found.url), prefix=prefix, timeout_seconds=15.0)
        (id,) = await grow(store, "one")
        source, target = ends(found, clock(prefix, id))
        slot = begin_to_move(clock(prefix, id), source, target)
        with pytest.raises(StoreUnavailable, match="moving to another node"):
            await said(store, id)
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.ask("CLUSTER", "MYID"))
        (other,) = await grow(store, "two", parent=id)
        assert await said(store, other) == ["one", "two"]
        await store.close()


@pytest.mark.parametrize("few", [True, False], ids=["one", "all-but-one"])
async def test_nothing_is_changed_while_the_keys_of_a_slot_are_on_two_nodes(
    tmp_path: Path, prefix: str, few: bool
) -> None:
    with cluster(tmp_path) as found:
        patient = ConversationHistoryStore(connect(found.url), prefix=prefix, timeout_seconds=15.0)
        (id,) = await grow(patient, "one")
        keyed = KeyedRequests(patient)
        request = await keyed.request(TENANT, "/v1/responses", b"key", b"{}")
        assert (await keyed.take(request, patient.token())).found is FoundRequest.MINE
        await patient.close()
        one = clock(prefix, id)
        ends_of = ends(found, one)
        begin_to_move(one, *ends_of, (lambda key: key == one) if few else (lambda key: key != one))
        before = [contents(node) for node in ends_of]

        store = ConversationHistoryStore(connect(found.url), prefix=prefix, timeout_seconds=LIMIT_SECONDS)
        with pytest.raises(StoreUnavailable):
            await KeyedRequests(store).take(request, store.token())
        done = await asyncio.gather(*(deed(store, id) for deed in OPERATIONS.values()), return_exceptions=True)
        assert sum(isinstance(each, StoreUnavailable) for each in done) > len(OPERATIONS) / 2
        for node, held in zip(ends_of, before, strict=True):
            assert contents(node).items() <= held.items()
        await store.close()


def contents(node: Process) -> dict[bytes, bytes]:
    """The keys of a node and what they hold."""
    with Redis("127.0.0.1", node.port, single_connection_client=True) as client:
        held: dict[bytes, bytes] = {}
        for key in client.scan_iter():
            client.execute_command("ASKING")
            held[key] = client.dump(key) or b""
        return held


def ends(found: Cluster, key: str) -> tuple[Process, Process]:
    """The primary that has the key, and another."""
    source = found.owner(key)
    return source, next(node for node in found.primaries if node is not source)


def begin_to_move(key: str, source: Process, target: Process, moves: Callable[[str], bool] = lambda _: True) -> int:
    """Move the keys of a key's slot, which is then still the source's, or those that `moves` says; the slot."""
    slot = source.ask("CLUSTER", "KEYSLOT", key)
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))
    keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100)
    source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *filter(moves, keys))
    return slot


@pytest.mark.parametrize("at_once", [True, False], ids=["at-once", "key-by-key"])
async def test_all_shards_move_to_one_node_under_load_and_nothing_is_lost_or_there_twice(
    tmp_path: Path, prefix: str, at_once: bool
) -> None:
    with cluster(tmp_path) as found:
        store = ConversationHistoryStore(
            connect(found.url), prefix=prefix, shards=FEW_SHARDS, timeout_seconds=LIMIT_SECONDS
        )
        target, *_ = found.primaries
        async with talking(store, TALKERS) as talkers:
            for shard in range(FEW_SHARDS):
                key = f"{prefix}:{{{shard:02x}}}:clock"
                if (source := found.owner(key)) is not target:
                    await asyncio.to_thread(move_at_once if at_once else move_keys, found, key, source, target)
            await talkers.grown(2)
        assert (await usage(store)).responses == talkers.turns
        await store.close()


def move_at_once(_: Cluster, key: str, source: Process, target: Process) -> None:
    slot, id = source.ask("CLUSTER", "KEYSLOT", key), target.ask("CLUSTER", "MYID")
    source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", id)
    wait_until(lambda: not source.ask("CLUSTER", "COUNTKEYSINSLOT", slot))


def move_keys(found: Cluster, key: str, source: Process, target: Process) -> None:
    """Move a slot as `redis-cli --cluster reshard` does."""
    slot = begin_to_move(key, source, target, lambda each: each == key)
    while some := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1_000):
        source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *some)
    for node in (target, source, *found.primaries):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.ask("CLUSTER", "MYID"))


async def test_a_node_that_died_takes_its_own_shards_along_until_it_is_back(tmp_path: Path, prefix: str) -> None:
    with cluster(tmp_path, "--cluster-require-full-coverage", "no") as found:
        store = ConversationHistoryStore(
            connect(found.url), prefix=prefix, shards=SHARDS, timeout_seconds=LIMIT_SECONDS
        )
        ids = await on_each(store, found, prefix)
        dead, *others = found.primaries
        dead.kill()
        await refused_in_time(store, ids[dead.port])
        for node in others:
            assert await said(store, ids[node.port]) == ["one"]
        dead.restart()
        await eventually(lambda: store.append(TENANT, turn(ids[dead.port])), StoreUnavailable)
        await store.close()


async def refused_in_time(store: ConversationHistoryStore, id: str) -> None:
    start = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.get(TENANT, id)
    assert time.monotonic() - start < LIMIT_SECONDS + GRACE_SECONDS


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hanging"])
async def test_the_replica_of_a_primary_that_is_gone_takes_over(
    tmp_path: Path, prefix: str, end: signal.Signals
) -> None:
    with cluster(tmp_path, replicas=True, node_timeout_ms=NODE_TIMEOUT_MS) as found:
        store = ConversationHistoryStore(
            connect(found.url), prefix=prefix, shards=SHARDS, timeout_seconds=LIMIT_SECONDS
        )
        ids = await on_each(store, found, prefix)
        for primary in found.primaries:
            primary.ask("WAIT", 1, 5000)
        await asyncio.gather(*(said(store, id) for id in ids.values() for _ in range(4)))
        os.kill(found.primaries[0].process.pid, end)
        for id in ids.values():
            await eventually(lambda id=id: said(store, id), StoreUnavailable)
            (reply,) = await grow(store, "two", parent=id)
            assert await said(store, reply) == ["one", "two"]
        await store.close()
