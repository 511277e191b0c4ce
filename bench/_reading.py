"""What reading a chain takes with the read cache and without, and what the cache takes in this process's memory."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench._rig import Server
from bench.chain import TENANT, grow, seconds, turn_of
from store.codec import StoredTurns, encode_messages
from store.history.cache import TurnCache
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect

CACHE_BYTES = 64 << 20
COUNTED_BYTES = 8 << 20
READS = 150


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
