"""What reading a chain costs, against a raw MGET of the same bytes by the same client on the same server.

    scripts/bench chain [--check]

Both are timed in turns, one after the other, so that whatever else the machine does hits both. Also told:
what decoding the chain costs, which is left to whoever looks at its messages, and one append and one get.
Never compare times across runs: only ratios hold.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from store import codec
from store.embedded import EmbeddedServer
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.turn import Status, StoredMessage, Turn

LENGTHS = {1: 2.5, 10: 2.5, 100: 2.5, 1000: 1.25}
"""Turns of a chain, and the most that reading it may cost as a multiple of the raw MGET."""

MESSAGE_TOKENS = {"user": 40, "analysis": 140, "final": 305}
"""A turn of 485 tokens, the three messages that it usually has."""

TURN_TOKENS = sum(MESSAGE_TOKENS.values())

TENANT = "bench"


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


async def measure(url: str, rounds: int) -> dict[int, float]:
    """Print a line per chain length; the ratios by length."""
    redis = connect(url)
    store = ConversationHistoryStore(redis)
    ratios: dict[int, float] = {}
    print("  turns   tokens     MGET ms   chain ms      ratio     target  decoding ms")
    for length, target in LENGTHS.items():
        tip = await grow(store, length)
        lineage = await store.lineage(TENANT, tip)
        keys = [f"harmonium:{{00}}:t:{TENANT}:messages:{turn.removeprefix('resp_')}" for turn in lineage]
        blobs = [blob for blob in await redis.mget(keys) if isinstance(blob, bytes)]
        raw, chain, decoding = [], [], []
        for _ in range(max(15, rounds // max(1, length // 50))):
            raw.append(await seconds(lambda keys=keys: redis.execute_command("MGET", *keys)))
            chain.append(await seconds(lambda tip=tip: store.chain(TENANT, tip)))
            start = time.perf_counter()
            for blob in blobs:
                _ = codec.StoredTurns([blob])[0]
            decoding.append(time.perf_counter() - start)
        ratios[length] = median(chain) / median(raw)
        columns = [median(raw) * 1e3, median(chain) * 1e3, ratios[length], target, median(decoding) * 1e3]
        print(f"{length:7,} {length * TURN_TOKENS:8,}", "".join(f"{figure:11.3f}" for figure in columns))
    await measure_single(store, rounds)
    await store.close()
    return ratios


async def grow(store: ConversationHistoryStore, length: int) -> str:
    """A new chain of `length` turns; its tip."""
    tip: str | None = None
    for _ in range(length):
        turn = turn_of(store.new_id(tip), tip)
        await store.append(TENANT, turn)
        tip = turn.id
    assert tip is not None
    return tip


async def measure_single(store: ConversationHistoryStore, rounds: int) -> None:
    """Print what one append and one get take."""
    turns = [turn_of(store.new_id(), None) for _ in range(rounds)]
    appends = [await seconds(lambda turn=turn: store.append(TENANT, turn)) for turn in turns]
    gets = [await seconds(lambda turn=turn: store.get(TENANT, turn.id)) for turn in turns]
    print(f"append {median(appends) * 1e3:.3f} ms, get {median(gets) * 1e3:.3f} ms")


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="the cost of reading a chain, against a raw MGET")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--rounds", type=int, default=300, help="how often a short chain is read (300)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as server:
        ratios = asyncio.run(measure(server.url, options.rounds))
    worst = max(ratios[length] for length in LENGTHS if length <= 100)
    longest = max(LENGTHS)
    met = all(ratios[length] <= target for length, target in LENGTHS.items())
    print(
        f"chain: {worst:.2f}x up to 100 turns, {ratios[longest]:.2f}x at {longest:,}"
        f" (target {LENGTHS[100]}x and {LENGTHS[longest]}x): {'met' if met else 'missed'}"
    )
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
