"""Confirming: what counts as stored is on the replicas and the disk that were asked for, and waits hold up nobody."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import exceptions as redis_errors

from store.errors import StoreUnavailable, StoreUnconfirmed, Unsupported
from store.history.history import ConversationHistoryStore
from store.redis.confirm import Safety
from store.redis.connection import connect
from store.watcher import UNWATCHED
from tests.support.lengths import lengths
from tests.support.store.counted import usage
from tests.support.store.link import link
from tests.support.store.sample import TENANT, grow, said, turn
from tests.support.store.servers import PLAIN, Process, cluster, sentinels, server
from tests.support.store.talkers import talking
from tests.support.waiting import until as soon

ONE = Safety(replicas=1, seconds=1.0)
PATIENT = Safety(replicas=1, seconds=5.0)
CONNECTIONS = 8
TALKERS = 16
STALL_SECONDS = 1.0
HEALED_SECONDS = 30.0


class Pair:
    """A primary and its replica, which may stall."""

    def __init__(self, primary: Process, replica: Process) -> None:
        self.primary = primary
        self.replica = replica

    def waits(self) -> int:
        """How often the primary was asked to wait."""
        return self.primary.ask("INFO", "commandstats").get("cmdstat_wait", {"calls": 0})["calls"]

    def store(self, safety: Safety) -> ConversationHistoryStore:
        url = f"redis://{self.primary.address}"
        return ConversationHistoryStore(connect(url, max_connections=CONNECTIONS), safety=safety, timeout_seconds=15.0)


@contextmanager
def stalled(process: Process) -> Iterator[None]:
    """A server that stands still until the end of the block."""
    os.kill(process.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.process.pid, signal.SIGCONT)


@pytest.fixture
def pair(primary_and_replica: tuple[Process, Process]) -> Pair:
    return Pair(*primary_and_replica)


@pytest.fixture
async def store(pair: Pair) -> AsyncIterator[ConversationHistoryStore]:
    """A store whose turns are to be on a replica, soon."""
    made = pair.store(ONE)
    yield made
    await made.close()


async def test_many_turns_are_confirmed_by_few_waits(pair: Pair) -> None:
    store = pair.store(PATIENT)
    ids = await asyncio.gather(*(grow(store, "one") for _ in range(300)))
    assert len(ids) == 300
    assert 0 < pair.waits() < 300, "several share one"
    assert int(pair.replica.ask("HGET", "harmonium:{00}:usage", "responses")) == 300
    await store.close()


async def test_a_replica_that_stalls_is_told_in_time_and_nobody_else_waits(
    pair: Pair, store: ConversationHistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[str] = []
    monkeypatch.setattr(UNWATCHED, "gone", lambda failure: gone.append(str(failure)))
    back: list[float] = []
    monkeypatch.setattr(UNWATCHED, "back", lambda seconds, _: back.append(seconds))
    patient = pair.store(PATIENT)
    (id,) = await grow(patient, "one")
    loop = asyncio.get_running_loop()
    with stalled(pair.replica):
        began = loop.time()
        writes = [asyncio.create_task(grow(store, "two", parent=id)) for _ in range(4 * CONNECTIONS)]
        reads = [asyncio.create_task(said(store, id)) for _ in range(4 * CONNECTIONS)]
        assert await asyncio.gather(*reads) == [["one"]] * (4 * CONNECTIONS)
        assert not any(write.done() and write.exception() is None for write in writes)
        failures = await asyncio.gather(*writes, return_exceptions=True)
        assert {type(failure) for failure in failures} == {StoreUnconfirmed}
        assert loop.time() - began < 20.0
        with pytest.raises(StoreUnconfirmed, match=r"0 of 1 replicas had it within 1 s"):
            await store.check()
    await soon(store.check, wanted=lambda _: True, passing=StoreUnconfirmed)
    await grow(patient, "three", parent=id)
    await patient.close()
    assert (len(gone), len(back)) == (1, 1)
    assert "0 of 1 replicas" in gone[0]


async def test_what_is_not_safe_in_time_is_there_and_safe_at_the_next_try(
    pair: Pair, store: ConversationHistoryStore
) -> None:
    one = turn(store.new_id())
    with stalled(pair.replica):
        with pytest.raises(StoreUnconfirmed):
            await store.append(TENANT, one)
        assert await store.get(TENANT, one.id) == one.response
    await soon(lambda: store.append(TENANT, one), wanted=lambda _: True, passing=StoreUnconfirmed)
    assert (await usage(store)).responses == 1


async def test_a_turn_that_a_failover_lost_before_it_was_confirmed_is_stored_again(pair: Pair, tmp_path: Path) -> None:
    async with link(pair.primary.port) as address:
        store = ConversationHistoryStore(connect(address.url, max_connections=CONNECTIONS), safety=PATIENT)
        (id,) = await grow(store, "one")
        with stalled(pair.replica), server(tmp_path, *PLAIN) as third:
            reply = turn(store.new_id(id), id, text="two")
            storing = asyncio.create_task(store.append(TENANT, reply))
            await soon(lambda: pair.primary.ask("HGET", "harmonium:{00}:usage", "responses") == "2")
            address.target = pair.replica.port
            pair.primary.kill()
            os.kill(pair.replica.process.pid, signal.SIGCONT)
            await soon(lambda: promoted(pair.replica), passing=redis_errors.RedisError)
            third.ask("REPLICAOF", "127.0.0.1", pair.replica.port)
            await asyncio.gather(storing, return_exceptions=True)  # in time or not, as the third one follows
            await soon(lambda: store.append(TENANT, reply), 15.0, wanted=lambda _: True, passing=StoreUnavailable)
            assert await said(store, reply.id) == ["one", "two"]
            assert int(third.ask("HGET", "harmonium:{00}:usage", "responses")) == 2
        await store.close()


def promoted(replica: Process) -> bool:
    """Make it a primary; whether it is one."""
    replica.ask("REPLICAOF", "NO", "ONE")
    return "master" in replica.ask("ROLE")


@pytest.mark.parametrize("rounds", lengths(1, 20, seconds=600))
async def test_a_replica_that_stalled_and_took_over_under_load_has_all_that_was_acknowledged_once(
    pair: Pair, tmp_path: Path, rounds: int
) -> None:
    async with link(pair.primary.port) as address:
        store = ConversationHistoryStore(connect(address.url, max_connections=CONNECTIONS), safety=PATIENT)
        async with talking(store, TALKERS) as talkers:
            primary, replica = pair.primary, pair.replica
            for _ in range(rounds):
                with stalled(replica):
                    await asyncio.sleep(STALL_SECONDS)
                    primary.kill()
                await soon(lambda replica=replica: promoted(replica), passing=redis_errors.RedisError)
                primary.restart()
                primary.ask("REPLICAOF", "127.0.0.1", replica.port)
                address.target = replica.port
                await talkers.grown(2, HEALED_SECONDS)
                primary, replica = replica, primary
        assert int(primary.ask("HGET", "harmonium:{00}:usage", "responses")) == talkers.turns
        await store.close()


@pytest.mark.parametrize("rounds", lengths(1, 12, seconds=900))
async def test_a_cluster_whose_replica_stalled_and_took_over_has_all_that_was_acknowledged_once(
    tmp_path: Path, rounds: int
) -> None:
    with cluster(tmp_path, replicas=True, node_timeout_ms=2_000) as found:
        store = ConversationHistoryStore(connect(found.url, max_connections=CONNECTIONS), shards=16, safety=PATIENT)
        async with talking(store, TALKERS) as talkers:
            for number in range(rounds):
                one, other = found.primaries[number % 3], found.replicas[number % 3]
                primary, replica = (one, other) if "master" in one.ask("ROLE") else (other, one)
                with stalled(replica):
                    await asyncio.sleep(STALL_SECONDS)
                    primary.kill()
                await soon(lambda replica=replica: "master" in replica.ask("ROLE"), HEALED_SECONDS)
                primary.restart()
                await talkers.grown(2, HEALED_SECONDS)
        assert (await usage(store)).responses == talkers.turns
        await store.close()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGSTOP, id="frozen", marks=pytest.mark.full),  # a Sentinel tells it some 10 s later
    ],
)
async def test_a_primary_that_sentinels_replace_under_load_takes_nothing_that_was_acknowledged_with_it(
    tmp_path: Path, end: signal.Signals
) -> None:
    with sentinels(tmp_path, down_ms=500) as watched, server(tmp_path, *PLAIN) as third:
        store = ConversationHistoryStore(connect(watched.url, max_connections=CONNECTIONS), safety=PATIENT)
        async with talking(store, TALKERS) as talkers:
            with stalled(watched.replica):  # so that the primary has turns which nobody else has
                before = talkers.turns
                await soon(lambda: waits_for_replicas(watched.primary))
                os.kill(watched.primary.process.pid, end)
            await soon(lambda: "master" in watched.replica.ask("ROLE"), HEALED_SECONDS)
            if end == signal.SIGKILL:
                third.ask("REPLICAOF", "127.0.0.1", watched.replica.port)
            else:  # it takes itself for the primary until a Sentinel tells it
                os.kill(watched.primary.process.pid, signal.SIGCONT)
            await talkers.grown(2, HEALED_SECONDS)
        assert talkers.turns > before
        assert int(watched.replica.ask("HGET", "harmonium:{00}:usage", "responses")) == talkers.turns
        await store.close()


def waits_for_replicas(primary: Process) -> bool:
    """Whether somebody waits there until replicas have something."""
    return "cmd=wait" in primary.ask("CLIENT", "LIST")


async def test_what_was_acknowledged_is_on_the_disk_of_a_server_that_is_killed(tmp_path: Path) -> None:
    with server(tmp_path, "--appendonly", "yes", "--appendfsync", "everysec") as one:
        url = f"redis://{one.address}"
        store = ConversationHistoryStore(connect(url, max_connections=CONNECTIONS), safety=Safety(fsync=True))
        async with talking(store, TALKERS) as talkers:
            one.kill()
            one.restart()
            await talkers.grown(2, HEALED_SECONDS)
        assert (await usage(store)).responses == talkers.turns
        await store.close()


async def test_a_server_that_keeps_no_file_is_named(tmp_path: Path) -> None:
    with server(tmp_path, *PLAIN) as one:
        store = ConversationHistoryStore(connect(f"redis://{one.address}"), safety=Safety(fsync=True))
        with pytest.raises(Unsupported, match="HARMONIUM_STORE_FSYNC needs an append-only file"):
            await store.confirmer.require(store.keyspace.all_shards())
        one.ask("CONFIG", "SET", "appendonly", "yes")
        await store.confirmer.require(store.keyspace.all_shards())
        await store.close()
