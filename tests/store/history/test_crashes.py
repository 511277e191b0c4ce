"""The rest when processes are killed: clients in the middle of an append, or between any two steps of adding to a
conversation, and the server under load.

What was acknowledged is there, what was not is there whole or not at all, and nothing else is left for ever: pins run
out, and a turn whose deletion was cut short goes when it is deleted again. Each turn of a conversation stands once,
behind the one that it was to follow, and no conversation is held for longer than a lease.
"""

from collections import defaultdict
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from store.errors import ConversationHeld, NotFound
from store.history.conversations import Conversations
from tests.support.lengths import lengths
from tests.support.store.audit import dump
from tests.support.store.crashes import BATCH, Crashes, Store, talkers
from tests.support.store.fixtures import OpenStore
from tests.support.store.programs.killed import PIN_SECONDS, Told
from tests.support.store.programs.killed_conversations import HELD_SECONDS
from tests.support.store.sample import TENANT
from tests.support.store.verdict import faults
from tests.support.store.witness import objections, pictured, witness
from tests.support.waiting import until


class TestTurns(Crashes):
    """Of turns, to which deleted ones may be back where the newest are gone."""

    async def check_killed(self, store: Store, told: Told) -> None:
        assert len(told.parents) > told.done > BATCH

    async def check(self, store: Store, told: Told, *, since: float | None = None) -> set[str]:
        times = [await store.redis.pttl(key) for key in await store.keys("pins")]
        assert [time for time in times if time != -2 and not 0 <= time <= PIN_SECONDS * 1000] == []
        going, gone = told.among(("forgetting", "abandoning")), told.among(("forgot", "abandoned"))
        there = {id for id in told.parents if await store.known(id)}
        lacking = told.appended.keys() - going - there
        assert {id for id in lacking if since is None or told.appended[id] < since} == set()
        assert since is not None or there & gone == set()
        for id in there:
            assert objections(TENANT, await store.history.chain(TENANT, id)) == []
            whole = pictured(witness(TENANT, id, told.parents[id]))
            assert await store.history.get(TENANT, id) == whole.response
            shown = {each.digest: each.data for each in whole.pictures}
            assert await store.history.pictures(TENANT, id, shown) == shown
        await until(lambda: store.keys("pins"), wanted=lambda pins: not pins, otherwise="pins are left for ever")
        await store.history.sweep()
        assert await faults(store.redis, store.url, store.prefix) == []
        return lacking

    async def check_leavings(self, store: Store, told: Told) -> None:
        for id in told.parents:
            with suppress(NotFound):
                await store.history.forget_tree(TENANT, id)
        assert [key for key in await dump(store.redis, store.prefix) if ":t:" in key] == []


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
