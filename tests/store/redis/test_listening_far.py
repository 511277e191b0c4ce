"""Listening to a cluster and behind Sentinels: slots that move, nodes that die, hang, and are replaced."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from redis import exceptions as redis_errors

from store.listening import Listener, Listening
from store.redis.connection import connect
from tests.support.store.servers import (
    Cluster,
    Process,
    Watched,
    cluster,
)

LONG_SECONDS = 20.0
LIMIT_SECONDS = 1.0
NODE_TIMEOUT_MS = 1000
ENDS = [signal.SIGKILL, signal.SIGSTOP]

CHANNELS = [f"{{{number:02x}}}:channel" for number in range(16)]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What is left, hung up and closed at the end of a test, after which nothing may be at work."""
    async with AsyncExitStack() as stack:
        yield stack
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def listeners(stack: AsyncExitStack, url: str, *channels: str) -> list[Listener]:
    """One for each channel."""
    redis = connect(url)
    listening = Listening(redis, timeout_seconds=LIMIT_SECONDS)
    stack.push_async_callback(redis.aclose)
    stack.push_async_callback(listening.close)
    return [await stack.enter_async_context(listening.channel(name)) for name in channels]


async def told(listener: Listener, server: Process, channel: str) -> None:
    """Say something at a server, again and again, until the listener, who may have missed some, hears it."""
    word = f"from {server.port}"
    deadline = asyncio.get_running_loop().time() + LONG_SECONDS
    while True:
        with suppress(redis_errors.RedisError):  # it may not be the one to say it yet
            server.ask("SPUBLISH", channel, word)
        if word.encode() in (await listener.messages(0.1) or ()):
            return
        assert asyncio.get_running_loop().time() < deadline, f"{word} is not heard"


async def heard(listener: Listener) -> list[bytes]:
    messages = await listener.messages(LONG_SECONDS)
    assert messages
    return messages


async def missed(listener: Listener) -> None:
    """Wait until the listener knows that something may be missing."""
    assert await listener.messages(LONG_SECONDS) is None


async def test_a_cluster_is_heard_over_one_connection_a_node(nodes: Cluster, stack: AsyncExitStack) -> None:
    found = await listeners(stack, nodes.url, *CHANNELS)
    for channel, listener in zip(CHANNELS, found, strict=True):
        nodes.owner(channel).ask("SPUBLISH", channel, "hello")
        assert await heard(listener) == [b"hello"]
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
        assert await heard(moving) == [b"on the way"]
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.ask("CLUSTER", "MYID"))
        await missed(moving)
        await told(moving, target, CHANNELS[0])
        source.ask("SPUBLISH", same, "never moved")
        assert await heard(staying) == [b"never moved"]
        await stack.aclose()


@pytest.mark.parametrize("end", ENDS, ids=["killed", "hanging"])
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
        assert await heard(other) == [b"all the same"]
        await stack.aclose()


@pytest.mark.parametrize("end", ENDS, ids=["killed", "hanging"])
async def test_behind_sentinels_the_new_primary_is_heard(
    watched: Watched, stack: AsyncExitStack, end: signal.Signals
) -> None:
    (listener,) = await listeners(stack, watched.url, "channel")
    watched.primary.ask("SPUBLISH", "channel", "old")
    assert await heard(listener) == [b"old"]
    os.kill(watched.primary.process.pid, end)
    await missed(listener)
    await told(listener, watched.replica, "channel")
