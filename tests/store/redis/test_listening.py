"""Listening, on one server, on a cluster and behind Sentinels: all that is said comes, or the listener knows that it
may have missed something.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from redis import exceptions as redis_errors
from redis.asyncio import Redis

from store.errors import StoreUnavailable
from store.listening import MAX_WAITING, MAX_WAITING_BYTES, Listener, Listening
from store.redis.connection import connect
from tests.support.store.servers import Cluster, Process, Watched, cluster, eventually, server
from tests.support.waiting import until

LONG_SECONDS = 20.0
LIMIT_SECONDS = 1.5
FAR_SECONDS = 3.0
NODE_TIMEOUT_MS = 3000
ENDS = pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hanging"])
CHANNELS = [f"{{{number:02x}}}:channel" for number in range(16)]
GRACE_SECONDS = 10.0


@pytest.fixture
async def listening(server_url: str) -> AsyncIterator[Listening]:
    """Whoever listens to the server that all tests share; afterwards nothing may be left of it."""
    listening = Listening(connect(server_url))
    yield listening
    await listening.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Process]:
    """A server that a test may harm."""
    with server(tmp_path) as started:
        yield started


def listening_to(process: Process) -> Listening:
    return Listening(connect(f"redis://{process.address}"), timeout_seconds=LIMIT_SECONDS)


async def say(redis: Redis, channel: str, *messages: bytes) -> None:
    for message in messages:
        await redis.execute_command("SPUBLISH", channel, message)


async def heard(listener: Listener, count: int) -> list[bytes]:
    """So many messages, of which none may be missed."""
    found: list[bytes] = []
    while len(found) < count:
        messages = await listener.messages(LONG_SECONDS)
        assert messages, f"missed some, or nothing in {LONG_SECONDS} s: {messages}"
        found += messages
    return found


async def missed(listener: Listener) -> None:
    """Wait until the listener knows that something may be missing."""
    assert await listener.messages(LONG_SECONDS) is None


async def listeners_at(redis: Redis, channel: str) -> int:
    """How many connections have subscribed to a channel."""
    return (await redis.execute_command("PUBSUB", "SHARDNUMSUB", channel))[1]


async def left(redis: Redis, channel: str) -> None:
    """Wait until nobody listens to a channel."""

    async def nobody() -> None:
        assert await listeners_at(redis, channel) == 0

    await eventually(nobody, AssertionError)


async def test_all_listeners_hear_all_that_is_said_in_order(listening: Listening, redis: Redis, prefix: str) -> None:
    messages = [b"%d" % number for number in range(50)]
    async with listening.channel(prefix) as one, listening.channel(prefix) as two:
        assert await listeners_at(redis, prefix) == 1
        await say(redis, prefix, *messages)
        assert await heard(one, 50) == await heard(two, 50) == messages


async def test_a_channel_is_left_with_its_last_listener(listening: Listening, redis: Redis, prefix: str) -> None:
    async with listening.channel(prefix):
        async with listening.channel(prefix):
            pass
        assert await listeners_at(redis, prefix) == 1
    await left(redis, prefix)


async def test_what_waits_for_a_listener_is_bounded_in_bytes_too() -> None:
    listener = Listener()
    half = bytes(MAX_WAITING_BYTES // 2)
    for _ in range(3):
        listener.tell(half)
        listener.tell(half)
        assert await heard(listener, 2) == [half, half]
    for message in (half, half, b"x"):
        listener.tell(message)
    await missed(listener)
    listener.tell(half)
    assert await heard(listener, 1) == [half]
    listener.tell(bytes(MAX_WAITING_BYTES + 1))
    await missed(listener)


async def test_one_who_does_not_listen_lags_and_the_others_miss_nothing(
    listening: Listening, redis: Redis, prefix: str
) -> None:
    async with listening.channel(prefix) as quick, listening.channel(prefix) as slow:
        for number in range(MAX_WAITING + 1):
            await say(redis, prefix, b"%d" % number)
            assert await heard(quick, 1) == [b"%d" % number]
        await missed(slow)
        await say(redis, prefix, b"new")
        assert await heard(slow, 1) == [b"new"]


async def test_a_wait_that_is_cut_short_loses_no_message(listening: Listening, redis: Redis, prefix: str) -> None:
    async with listening.channel(prefix) as listener:
        waiting = asyncio.create_task(listener.messages(LONG_SECONDS))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await say(redis, prefix, b"here")
        assert await heard(listener, 1) == [b"here"]


async def test_a_connection_that_is_killed_is_replaced_and_all_listeners_lag(alone: Process) -> None:
    url = f"redis://{alone.address}"
    listening, redis = Listening(connect(url), timeout_seconds=LONG_SECONDS), connect(url)
    async with AsyncExitStack() as stack:
        listeners = [await stack.enter_async_context(listening.channel(name)) for name in ("a", "b", "a")]
        for _ in range(3):
            assert await redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub") == 1
            for listener in listeners:
                await missed(listener)
        for name in ("a", "b"):
            await say(redis, name, name.encode())
        assert [await heard(listener, 1) for listener in listeners] == [[b"a"], [b"b"], [b"a"]]
    await listening.close()
    await redis.aclose()


@ENDS
async def test_a_server_that_is_away_is_told_of_in_time_and_heard_again_when_it_is_back(
    alone: Process, end: signal.Signals
) -> None:
    listening, redis = listening_to(alone), connect(f"redis://{alone.address}")
    async with listening.channel("a") as listener:
        os.kill(alone.process.pid, end)
        try:
            assert await listener.messages(4 * LIMIT_SECONDS) == []
            start = time.monotonic()
            with pytest.raises(StoreUnavailable, match=f"not subscribed within {LIMIT_SECONDS} s"):
                async with listening.channel("b"):
                    pass
            assert time.monotonic() - start < LIMIT_SECONDS + GRACE_SECONDS
        finally:
            os.kill(alone.process.pid, signal.SIGCONT)
        if end is signal.SIGKILL:
            alone.kill()
            alone.restart()
        await missed(listener)
        await told(listener, alone, "a")
    await listening.close()
    await redis.aclose()


async def test_those_who_come_and_go_while_connections_are_lost_leave_one_that_is_heard(tmp_path: Path) -> None:
    with server(tmp_path, "--requirepass", "secret") as process:  # a greeting is a time in which others may come
        redis = connect(f"redis://:secret@{process.address}")
        listening = Listening(redis, timeout_seconds=LIMIT_SECONDS)

        async def come_and_go(number: int) -> None:
            while True:
                with suppress(StoreUnavailable):
                    async with listening.channel(f"{number}"):
                        await asyncio.sleep(0.002)

        async with listening.channel("stays") as stays:
            restless = [asyncio.create_task(come_and_go(number)) for number in range(20)]
            for _ in range(20):
                await asyncio.sleep(0.1)
                await redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            for task in restless:
                task.cancel()
            await asyncio.gather(*restless, return_exceptions=True)
            while b"here" not in (await stays.messages(LIMIT_SECONDS) or ()):
                await say(redis, "stays", b"here")
            await until(lambda: redis.client_list("pubsub"), wanted=lambda found: len(found) == 1)
        await listening.close()
        await redis.aclose()


async def test_one_who_gives_up_before_it_is_confirmed_leaves_nothing(
    listening: Listening, redis: Redis, prefix: str
) -> None:
    async def listen(channel: str) -> None:
        async with listening.channel(channel):
            await asyncio.Event().wait()

    channels = [f"{prefix}:{ticks}" for ticks in range(30)]
    for ticks, channel in enumerate(channels):  # each is cut elsewhere, from finding the server to the first silence
        task = asyncio.create_task(listen(channel))
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    for channel in channels:
        await left(redis, channel)


async def test_closing_lets_go_of_all_who_listen(server_url: str, redis: Redis, prefix: str) -> None:
    before = len(await redis.client_list("pubsub"))
    listening = Listening(connect(server_url))
    async with listening.channel(prefix) as listener:
        waiting = asyncio.create_task(listener.messages(LONG_SECONDS))
        await asyncio.sleep(0)
        await listening.close()
        for ask in (waiting, listener.messages(LONG_SECONDS)):
            with pytest.raises(StoreUnavailable, match="listening was closed"):
                await ask
        with pytest.raises(StoreUnavailable, match="listening was closed"):
            async with listening.channel(prefix):
                pass

    async def hung_up() -> None:
        assert len(await redis.client_list("pubsub")) == before

    await eventually(hung_up, AssertionError)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Whatever it holds is left at the end of a test, after which nothing may be at work."""
    async with AsyncExitStack() as stack:
        yield stack
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def listeners(stack: AsyncExitStack, url: str, *channels: str) -> list[Listener]:
    """One for each channel."""
    redis = connect(url)
    listening = Listening(redis, timeout_seconds=FAR_SECONDS)
    stack.push_async_callback(redis.aclose)
    stack.push_async_callback(listening.close)
    return [await stack.enter_async_context(listening.channel(name)) for name in channels]


async def told(listener: Listener, process: Process, channel: str) -> None:
    """Say something at a server, again and again, until the listener, who may have missed some, hears it."""
    word = f"from {process.port}"
    deadline = asyncio.get_running_loop().time() + LONG_SECONDS
    while True:
        with suppress(redis_errors.RedisError):  # it may not be the one to say it yet
            process.ask("SPUBLISH", channel, word)
        if word.encode() in (await listener.messages(0.1) or ()):
            return
        assert asyncio.get_running_loop().time() < deadline, f"{word} is not heard"


async def test_a_cluster_is_heard_over_one_connection_a_node(nodes: Cluster, stack: AsyncExitStack) -> None:
    found = await listeners(stack, nodes.url, *CHANNELS)
    for channel, listener in zip(CHANNELS, found, strict=True):
        nodes.owner(channel).ask("SPUBLISH", channel, "hello")
        assert await heard(listener, 1) == [b"hello"]
    assert [len(node.ask("CLIENT", "LIST", "TYPE", "pubsub").splitlines()) for node in nodes.primaries] == [1, 1, 1]


def ends(found: Cluster, channel: str) -> tuple[Process, Process]:
    """The primary that has the channel, and another."""
    source = found.owner(channel)
    return source, next(node for node in found.primaries if node is not source)


async def test_a_slot_that_moves_key_by_key_is_heard_all_the_time(tmp_path: Path, stack: AsyncExitStack) -> None:
    with cluster(tmp_path) as found:
        same = next(each for each in CHANNELS[1:] if found.owner(each) is found.owner(CHANNELS[0]))
        moving, staying = await listeners(stack, found.url, CHANNELS[0], same)
        source, target = ends(found, CHANNELS[0])
        slot = source.ask("CLUSTER", "KEYSLOT", CHANNELS[0])
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.ask("CLUSTER", "MYID"))
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.ask("CLUSTER", "MYID"))
        source.ask("SPUBLISH", CHANNELS[0], "on the way")
        assert await heard(moving, 1) == [b"on the way"]
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.ask("CLUSTER", "MYID"))
        await missed(moving)
        await told(moving, target, CHANNELS[0])
        source.ask("SPUBLISH", same, "never moved")
        assert await heard(staying, 1) == [b"never moved"]
        await stack.aclose()


@ENDS
async def test_the_replica_of_a_primary_that_is_gone_is_heard_and_others_miss_nothing(
    tmp_path: Path, stack: AsyncExitStack, end: signal.Signals
) -> None:
    with cluster(tmp_path, replicas=True, node_timeout_ms=NODE_TIMEOUT_MS) as found:
        elsewhere = next(each for each in CHANNELS[1:] if found.owner(each) is not found.owner(CHANNELS[0]))
        listener, other = await listeners(stack, found.url, CHANNELS[0], elsewhere)
        primary = found.owner(CHANNELS[0])
        replica = found.replicas[found.primaries.index(primary)]
        os.kill(primary.process.pid, end)
        await missed(listener)
        await told(listener, replica, CHANNELS[0])
        found.owner(elsewhere).ask("SPUBLISH", elsewhere, "all the same")
        assert await heard(other, 1) == [b"all the same"]
        await stack.aclose()


@ENDS
async def test_behind_sentinels_the_new_primary_is_heard(
    watched: Watched, stack: AsyncExitStack, end: signal.Signals
) -> None:
    (listener,) = await listeners(stack, watched.url, "channel")
    watched.primary.ask("SPUBLISH", "channel", "old")
    assert await heard(listener, 1) == [b"old"]
    os.kill(watched.primary.process.pid, end)
    await missed(listener)
    await told(listener, watched.replica, "channel")
