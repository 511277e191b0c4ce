"""What is left of conversations when processes that add to them are killed between any two of their steps.

What was acknowledged is in its conversation once, what was not is in it once or not at all, each turn stands behind the
one that it was to follow, and no conversation is held for longer than a lease.
"""

import asyncio
import os
import signal
import sys
from collections import defaultdict
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from store.errors import ConversationHeld
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support import ROOT
from tests.support.store.programs.killed_conversations import HELD_SECONDS
from tests.support.store.sample import TENANT
from tests.support.store.verdict import faults
from tests.support.store.witness import objections, witness
from tests.support.waiting import until

CONVERSATIONS = 3
AT_ONCE = 4
SLACK_SECONDS = 5.0
"""How much later than a lease a busy machine may find out that it is over."""

Said = defaultdict[str, set[str]]
"""The turns that processes were about to add, `joining`, and those that the store acknowledged, `joined`."""


async def killed(url: str, prefix: str, kills: int) -> tuple[Said, Said]:
    """Let processes work, and kill so many; by their conversations what they were about to add, and what was added."""
    program = "tests.support.store.programs.killed_conversations"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", program, url, prefix, "7", str(AT_ONCE), str(kills),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    said: dict[str, Said] = {"joining": defaultdict(set), "joined": defaultdict(set)}
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            word, turn, conversation = line.decode().split()
            said[word][conversation].add(turn)
        assert await process.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return said["joining"], said["joined"]


async def kill(url: str, redis: Redis, prefix: str, kills: int) -> None:
    history = ConversationHistoryStore(connect(url), prefix=prefix)
    conversations = Conversations(history)
    ids = [conversations.new_id() for _ in range(CONVERSATIONS)]
    for id in ids:
        await conversations.create(TENANT, id, witness(TENANT, conversations.new_turn_id(id)), b"{}")
    joining, joined = await killed(url, prefix, kills)

    async def can_be_held(id: str) -> bool:
        try:
            await conversations.hold(TENANT, id, "next", HELD_SECONDS)
        except ConversationHeld:
            return False
        return True

    for id in ids:
        await until(lambda id=id: can_be_held(id), HELD_SECONDS + SLACK_SECONDS)
        turns = (await conversations.lineage(TENANT, id))[1:]
        assert len(set(turns)) == len(turns)
        assert joined[id] <= set(turns) <= joining[id]
        assert objections(TENANT, await conversations.chain(TENANT, id)) == []
        for turn in joining[id].difference(turns):
            assert not await redis.exists(history.keyspace.turn(TENANT, turn).key("node"))
    assert sum(map(len, joining.values())) > sum(map(len, joined.values())) > kills  # they were killed at work
    assert await faults(redis, url, prefix) == []
    await history.close()


async def test_processes_that_are_killed_while_they_add_lose_and_double_nothing(
    server_url: str, redis: Redis, prefix: str
) -> None:
    await kill(server_url, redis, prefix, 40)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_a_thousand_processes_that_are_killed_while_they_add_lose_and_double_nothing(
    server_url: str, redis: Redis, prefix: str
) -> None:
    await kill(server_url, redis, prefix, 1_000)
