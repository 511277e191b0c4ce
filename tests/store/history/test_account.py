"""The store's own account of its bytes is what the server really holds, give or take 15 %, whatever the turns are like.

Their sizes differ: one that rounds up to one of four sizes for each power of two takes up to a quarter more of turns
that all have the same size.
"""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from redis.asyncio import Redis

from store.history.caps import Caps
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import SAID_BYTES, Picture, Status, StoredMessage, Turn
from tests.support.store.counted import usage
from tests.support.store.sample import TENANT
from tests.support.waiting import until

TOLERANCE = 0.15
TURNS = {100: 2_000, 1_000: 400, 6_000: 200, 100_000: 40}
"""Sizes of a turn in bytes, and how many turns are enough for tables that grow in steps to matter little."""

TREE_TURNS = 20
DEADLINE_SECONDS = 5.0

Ids = list[str]
Shape = Callable[[ConversationHistoryStore, int, int], Awaitable[object]]


@pytest.fixture
async def counted(own_url: str) -> AsyncIterator[ConversationHistoryStore]:
    store = ConversationHistoryStore(connect(own_url), caps=Caps(responses=0, bytes=0), timeout_seconds=15.0)
    yield store
    await store.close()


def about(size: int) -> int:
    """A size between half and twice as much, all equally likely by their ratio."""
    return round(size * 2 ** random.uniform(-1, 1))


async def grow(store: ConversationHistoryStore, parent: str | None, count: int, size: int, said: int = 0) -> Ids:
    """Append a chain of turns of about that size that can't be compressed, with words of `said` bytes; their ids."""
    ids: Ids = []
    for _ in range(count):
        id = store.new_id(parent)
        own = about(size)
        messages = (StoredMessage("user", random.randbytes(own // 3)),)
        answer = random.randbytes(own - own // 3)
        words = random.randbytes(said)
        await store.append(TENANT, Turn(id, parent, Status.COMPLETED, messages, answer, said=words))
        ids.append(id)
        parent = id
    return ids


async def roots(store: ConversationHistoryStore, count: int, size: int) -> None:
    for _ in range(count):
        await grow(store, None, 1, size)


async def chains(store: ConversationHistoryStore, count: int, size: int, *, said: int = 0) -> list[Ids]:
    return [await grow(store, None, TREE_TURNS, size, said) for _ in range(count // TREE_TURNS)]


async def forks(store: ConversationHistoryStore, count: int, size: int) -> None:
    for _ in range(count // TREE_TURNS):
        (root,) = await grow(store, None, 1, size)
        for _ in range(TREE_TURNS - 1):
            await grow(store, root, 1, size)


async def deleted(store: ConversationHistoryStore, count: int, size: int, *, erase: bool = False) -> None:
    """Every other turn is deleted, of a quarter of the trees all turns are."""
    for number, ids in enumerate(await chains(store, count, size)):
        for id in ids[:-1:2]:
            await store.forget(TENANT, id, erase=erase)
        if number % 4 == 3:
            await store.forget_tree(TENANT, ids[-1])


async def conversations(store: ConversationHistoryStore, count: int, size: int) -> None:
    """A quarter of them are deleted again."""
    named = Conversations(store)
    for number in range(count // 2):
        id = named.new_id()
        messages = (StoredMessage("user", random.randbytes(about(size) // 3)),)
        first = Turn(named.new_turn_id(id), None, Status.COMPLETED, messages, b"{}")
        await named.create(TENANT, id, first, random.randbytes(about(size)))
        if number % 4 == 3:
            await named.delete(TENANT, id)


async def pictured(store: ConversationHistoryStore, count: int, size: int) -> None:
    """Each shows a picture of its own and that of the turn before it."""
    before = Picture.of(random.randbytes(size))
    for _ in range(count):
        id, one = store.new_id(), Picture.of(random.randbytes(about(size)))
        await store.append(TENANT, Turn(id, None, Status.COMPLETED, (), b"{}", pictures=(before, one)))
        before = one


async def looked(own: Redis) -> list[Any]:
    """Its memory and its connections at one moment: between two commands it may give back a connection's buffers."""
    async with own.pipeline(transaction=True) as both:
        return await both.info("memory").client_list().execute()


async def held_bytes(own: Redis) -> int:
    """What the server holds for what is stored: without connections and what waits to be written to its file."""
    memory, connections = await until(
        lambda: looked(own), DEADLINE_SECONDS, wanted=lambda seen: not seen[0]["lazyfree_pending_objects"]
    )
    clients = sum(int(each["tot-mem"]) for each in connections)
    return memory["used_memory"] - clients - memory["mem_aof_buffer"]


SHAPES: dict[str, Shape] = {
    "roots": roots,
    "chains": chains,
    "one chain": lambda store, count, size: grow(store, None, count, size),
    "forks": forks,
    "tombstones": deleted,
    "erased": partial(deleted, erase=True),
    "conversations": conversations,
    "recognised": partial(chains, said=SAID_BYTES),
    "pictured": pictured,
}
USUAL = 1_000
"""The size of which every shape is looked at on a push; the other sizes are of chains alone there."""


def case(shape: str, size: int) -> Any:
    """A row of the table, which is for the long form where another one looks at its shape and its size."""
    marks = [] if size == USUAL or shape == "chains" else [pytest.mark.full]
    return pytest.param(SHAPES[shape], size, marks=marks, id=f"{shape}-{size}")


@pytest.mark.parametrize(("shape", "size"), [case(shape, size) for shape in SHAPES for size in TURNS])
async def test_the_account_is_what_the_server_holds(
    counted: ConversationHistoryStore, own: Redis, shape: Shape, size: int
) -> None:
    await shape(counted, 4 * TREE_TURNS, size)  # the server keeps the scripts of this
    await own.flushall(asynchronous=False)
    before = await held_bytes(own)
    await shape(counted, TURNS[size], size)
    held = await held_bytes(own) - before
    assert (await usage(counted)).bytes == pytest.approx(held, rel=TOLERANCE)
