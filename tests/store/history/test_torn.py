"""Commands that are cut short on the wire: the server has carried out the whole of one, or nothing of it.

The bytes are those that the store sends. The cut is a connection that ends, which is all that the server sees when a
client is killed between any two bytes.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import hiredis
import pytest
from redis.asyncio import Redis

from store.errors import NotFound
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Turn
from tests.support.lengths import lengths
from tests.support.store.audit import dump
from tests.support.store.counted import Usage, usage
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT
from tests.support.store.verdict import faults
from tests.support.store.witness import objections, witness
from tests.support.waiting import until

DEADLINE_SECONDS = 10.0
PIN_SECONDS = 4.0
ENDS = 40
"""Of a command, so many bytes at the beginning and at the end are where every cut is tried."""

SAMPLES = 60
READ_BYTES = 1 << 16
GONE_MS = -2
"""What PTTL says of a key that has expired meanwhile; -1 would be one that never does."""

MISSING = b"*2\r\n$7\r\nmissing\r\n$0\r\n\r\n"

Call = Callable[[ConversationHistoryStore, Turn], Awaitable[object]]

CALLS: dict[str, Call] = {
    "root": lambda store, child: store.append(TENANT, witness(TENANT, child.id)),
    "child": lambda store, child: store.append(TENANT, child, pin="a pin"),
    "chain": lambda store, child: store.chain(TENANT, str(child.parent), pin=store.token()),
    "forget": lambda store, child: store.forget(TENANT, str(child.parent)),
}
"""What is cut short: calls that append `child` or a root of its id, or pin its parent, or delete it."""


class Tap:
    """A server that carries nothing out: it keeps the bytes of the last command of each name, and knows no turn."""

    def __init__(self) -> None:
        self.heard: dict[str, bytes] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection, on which nobody sends a script before the command in front of it was answered."""
        commands, heard = hiredis.Reader(), b""
        answers = {
            "FCALL": b"-ERR Function not found\r\n",
            "FUNCTION": b"-OOM none\r\n",
            "EVAL": MISSING,
            "TIME": hiredis.pack_command((int(time.time()), 0)),
        }
        while part := await reader.read(READ_BYTES):
            heard += part
            commands.feed(part)
            while command := commands.gets():
                name = command[0].decode()
                self.heard[name], heard = heard, b""
                writer.write(answers.get(name, b"+OK\r\n"))
        writer.close()


async def bytes_of(call: Call, child: Turn, folder: Path, prefix: str) -> dict[str, bytes]:
    """The bytes that a store sends for a call: FCALL, and EVAL to a server that takes no library."""
    tap = Tap()
    server = await asyncio.start_unix_server(tap.serve, folder / "tap")
    store = ConversationHistoryStore(
        connect(f"unix://{folder}/tap"), prefix=prefix, pin_seconds=PIN_SECONDS, timeout_seconds=60.0
    )
    try:
        with pytest.raises(NotFound):
            await call(store, child)
    finally:
        await store.close()
        server.close()
    return {name: tap.heard[name] for name in ("FCALL", "EVAL")}


@asynccontextmanager
async def wire(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(url.removeprefix("unix://"))
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def cut_within(url: str, part: bytes) -> None:
    """Send the beginning of a command, end the connection, and wait until the server has noticed."""
    async with wire(url) as (reader, writer):
        writer.write(part)
        writer.write_eof()
        assert await reader.read() == b"", "the server answered a part of a command"


async def cut_before_the_reply(url: str, command: bytes) -> None:
    async with wire(url) as (_, writer):
        writer.write(command)
        await writer.drain()


async def pinned(redis: Redis, prefix: str) -> bool:
    """Whether there is a pin; each has an end. KEYS: a SCAN of all others may take longer than one lasts."""
    times = [await redis.pttl(key) for key in await redis.keys(f"{prefix}:*:pins:*")]
    assert [time for time in times if time != GONE_MS and not 0 <= time <= PIN_SECONDS * 1000] == []
    return bool(times)


async def unpinned(redis: Redis, prefix: str) -> bool:
    return not await pinned(redis, prefix)


@pytest.fixture
async def store(
    open_store: OpenStore, server_url: str, redis: Redis, prefix: str
) -> AsyncIterator[ConversationHistoryStore]:
    """A store, on a server that knows all scripts of CALLS. After the test its keys must add up."""
    yield open_store(pin_seconds=PIN_SECONDS)
    assert await faults(redis, server_url, prefix) == []


@pytest.fixture
async def child(store: ConversationHistoryStore) -> Turn:
    parent = store.new_id()
    await store.append(TENANT, witness(TENANT, parent))
    await store.chain(TENANT, parent)
    with pytest.raises(NotFound):
        await store.forget(TENANT, store.new_id())
    return witness(TENANT, store.new_id(parent), parent, filler=random.randbytes(200))


NAME = pytest.mark.parametrize("name", ["FCALL", "EVAL"])
CALL = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@NAME
@CALL
@pytest.mark.parametrize("every", lengths(False, True, seconds=600))
async def test_a_part_of_a_command_changes_nothing(
    server_url: str, redis: Redis, prefix: str, child: Turn, tmp_path: Path, call: Call, name: str, every: bool
) -> None:
    command = (await bytes_of(call, child, tmp_path, prefix))[name]
    parts = range(len(command))
    some = [*parts[:ENDS], *random.Random(1).sample(parts, SAMPLES), *parts[-ENDS:]]
    before = await dump(redis, prefix)
    for length in parts if every else some:
        await cut_within(server_url, command[:length])
    assert await dump(redis, prefix) == before


@NAME
async def test_an_append_whose_reply_nobody_reads_stores_the_whole_turn(
    server_url: str, store: ConversationHistoryStore, prefix: str, child: Turn, tmp_path: Path, name: str
) -> None:
    command = (await bytes_of(CALLS["child"], child, tmp_path, prefix))[name]
    await cut_before_the_reply(server_url, command)

    async def stored() -> bool:
        return (await usage(store)).responses == 2

    await until(stored, DEADLINE_SECONDS)
    chain = await store.chain(TENANT, child.id)
    assert (chain.ids, objections(TENANT, chain)) == ((child.parent, child.id), [])
    assert await store.get(TENANT, child.id) == child.response
    await store.append(TENANT, child)
    assert (await usage(store)).responses == 2


@NAME
async def test_a_deletion_whose_reply_nobody_reads_is_finished_by_the_next(
    server_url: str, store: ConversationHistoryStore, prefix: str, child: Turn, tmp_path: Path, name: str
) -> None:
    command = (await bytes_of(CALLS["forget"], child, tmp_path, prefix))[name]
    await cut_before_the_reply(server_url, command)

    async def deleted() -> bool:
        return (await usage(store)).responses == 0

    await until(deleted, DEADLINE_SECONDS)
    with pytest.raises(NotFound):
        await store.forget(TENANT, str(child.parent))
    assert await usage(store) == Usage()


@NAME
async def test_a_pin_of_which_its_run_never_heard_runs_out(
    server_url: str, store: ConversationHistoryStore, redis: Redis, prefix: str, child: Turn, tmp_path: Path, name: str
) -> None:
    command = (await bytes_of(CALLS["chain"], child, tmp_path, prefix))[name]
    await cut_before_the_reply(server_url, command)
    await until(lambda: pinned(redis, prefix), DEADLINE_SECONDS)
    await until(lambda: unpinned(redis, prefix), DEADLINE_SECONDS)
    await store.forget(TENANT, str(child.parent))
    assert await usage(store) == Usage()
