"""What reading a chain takes with the read cache and without, and what the cache takes in this process's memory."""

import random
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bench._rig import Server
from store.codec import StoredTurns, encode_messages
from store.history.history import ConversationHistoryStore
from store.history.read import TurnCache
from store.redis.connection import connect
from store.turn import Status, StoredMessage, Turn

CACHE_BYTES = 64 << 20
COUNTED_BYTES = 8 << 20
READS = 150

MESSAGE_TOKENS = {"user": 40, "analysis": 140, "final": 305}
"""A turn of 485 tokens, the three messages that it usually has."""

TENANT = "bench"


@dataclass(frozen=True)
class Cached:
    """Reading a chain of so many turns, without the read cache and from it: ms, and KB from the server."""

    turns: int
    plain_ms: float
    cached_ms: float
    plain_kb: float
    cached_kb: float


async def measure_cache(server: Server, lengths: Sequence[int]) -> list[Cached]:
    """Read chains with a cache and without, and look at each message as whoever renders does."""
    stores = [ConversationHistoryStore(connect(server.url), cache_bytes=size) for size in (0, CACHE_BYTES)]
    rows: list[Cached] = []
    for length in lengths:
        tip = await grow(stores[0], length)
        times: list[list[float]] = [[], []]
        sent = [0.0, 0.0]

        async def read(store: ConversationHistoryStore, tip: str = tip) -> None:
            for _ in (await store.chain(TENANT, tip)).messages():
                pass

        await read(stores[1])
        for _ in range(max(15, READS // max(1, length // 50))):
            for which, store in enumerate(stores):
                before = server.sent_bytes()
                times[which].append(await seconds(lambda store=store, read=read: read(store)))
                sent[which] = (server.sent_bytes() - before) / 1000
        rows.append(Cached(length, *(median(each) * 1e3 for each in times), *sent))
    for store in stores:
        await store.close()
    return rows


def measure_cached_bytes() -> float:
    """What Python takes for a byte of the cache's own account, in a cache that is full of what chains are made of."""
    tracemalloc.start()
    cache = TurnCache(COUNTED_BYTES)
    began, _ = tracemalloc.get_traced_memory()
    for number in range(COUNTED_BYTES // 1000):
        key = f"harmonium:{{00}}:t:{TENANT}:messages:{number:048x}"
        cache.put(key, StoredTurns([encode_messages(turn_of(key, None).messages)])[0])
    taken = tracemalloc.get_traced_memory()[0] - began
    tracemalloc.stop()
    return taken / cache.bytes


def turn_of(id: str, parent: str | None) -> Turn:
    """A turn of ordinary size: messages of 485 tokens, a response and input items of about 3 KB."""
    messages = tuple(
        StoredMessage(
            role="user" if kind == "user" else "assistant",
            channel=None if kind == "user" else kind,
            tokens=b"".join(random.randrange(200_000).to_bytes(4, "little") for _ in range(count)),
        )
        for kind, count in MESSAGE_TOKENS.items()
    )
    words = " ".join(f"word{random.randrange(2000)}" for _ in range(300))
    response = f'{{"id":"{id}","output":[{{"type":"message","text":"{words}"}}]}}'.encode()
    return Turn(id, parent, Status.COMPLETED, messages, response, b'[{"type":"message","role":"user"}]')


async def seconds(action: Callable[[], Awaitable[object]]) -> float:
    """How long one call of `action` takes."""
    start = time.perf_counter()
    await action()
    return time.perf_counter() - start


async def grow(store: ConversationHistoryStore, length: int) -> str:
    """A new chain of `length` turns; its tip."""
    tip: str | None = None
    for _ in range(length):
        turn = turn_of(store.new_id(tip), tip)
        await store.append(TENANT, turn)
        tip = turn.id
    assert tip is not None
    return tip
