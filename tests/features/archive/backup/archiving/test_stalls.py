"""Nobody waits for somebody else's large conversation: the loop never works for long on what leaves for an archive, is
read there or comes back, however well it is compressed.
"""

import asyncio
import random
from collections.abc import Awaitable

import pytest
from redis.asyncio import Redis

from store.keys import digits_of
from store.turn import Status, StoredMessage, Turn
from tests.support.archive.kept import Kept, lose
from tests.support.service.lag import STALL_SECONDS, longest_work
from tests.support.store.sample import TENANT

MIB = 1 << 20
ATTEMPTS = 5
"""The garbage collector may come in between, so the best of some counts."""

KINDS = {"one letter": bytes, "noise": lambda size: random.Random(size).randbytes(size // 2).hex().encode()}


async def chain_of(archived: Kept, turns: int, content: bytes) -> str:
    """The last of some turns, one after the other, each with such items."""
    parent: str | None = None
    for _ in range(turns):
        id = archived.store.new_id(parent)
        said = (StoredMessage("user", tokens=b"hi, you!"),)
        await archived.store.append(TENANT, Turn(id, parent, Status.COMPLETED, said, b'{"x":1}', content))
        parent = id
    assert parent is not None
    return parent


async def longest(work: Awaitable[object]) -> float:
    """The most processor time of the loop at once while this is done, in seconds."""
    task = asyncio.ensure_future(work)
    worst = await longest_work(task)
    assert await task is not False
    return worst


@pytest.mark.parametrize("kind", KINDS)
async def test_the_loop_never_works_for_long_on_a_large_conversation(
    archived: Kept, redis: Redis, prefix: str, kind: str
) -> None:
    tried: list[dict[str, float]] = []
    for _ in range(ATTEMPTS):
        id = digits_of(await chain_of(archived, 8, KINDS[kind](4 * MIB)))
        steps = {"archived": await longest(archived.archive_all())}
        await lose(redis, prefix)
        steps["found"] = await longest(archived.turns.found(TENANT, id))
        steps["brought back"] = await longest(archived.turns.bring_back(TENANT, id))
        await lose(redis, prefix)
        tried.append(steps)
        if max(steps.values()) < STALL_SECONDS:
            break
    print(*tried, sep="\n")
    assert max(tried[-1].values()) < STALL_SECONDS, tried
