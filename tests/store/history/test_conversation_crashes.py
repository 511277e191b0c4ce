"""What is left of conversations when processes that add to them are killed between any two of their steps.

What was acknowledged is in its conversation once, what was not is in it once or not at all, each turn stands behind the
one that it was to follow, and no conversation is held for longer than a lease.
"""

from collections import defaultdict

import pytest
from redis.asyncio import Redis

from store.errors import ConversationHeld
from store.history.conversations import Conversations
from tests.support.lengths import lengths
from tests.support.store.crashes import talkers
from tests.support.store.fixtures import OpenStore
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


@pytest.mark.parametrize("kills", lengths(40, 1_000))
async def test_processes_that_are_killed_while_they_add_lose_and_double_nothing(
    open_store: OpenStore, server_url: str, redis: Redis, prefix: str, kills: int
) -> None:
    history = open_store()
    conversations = Conversations(history)
    ids = [conversations.new_id() for _ in range(CONVERSATIONS)]
    for id in ids:
        await conversations.create(TENANT, id, witness(TENANT, conversations.new_turn_id(id)), b"{}")
    said: dict[str, Said] = {"joining": defaultdict(set), "joined": defaultdict(set)}
    async with talkers("killed_conversations", server_url, prefix, 7, AT_ONCE, kills) as lines:
        async for line in lines:
            word, turn, conversation = line.decode().split()
            said[word][conversation].add(turn)
    joining, joined = said["joining"], said["joined"]

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
    assert await faults(redis, server_url, prefix) == []
