"""The rest when processes are killed: clients in the middle of an append, and the server under load.

What was acknowledged is there, what was not is there whole or not at all, and nothing else is left for ever: pins run
out, and a turn whose deletion was cut short goes when it is deleted again.
"""

from contextlib import suppress

from store.errors import NotFound
from tests.support.store.audit import dump
from tests.support.store.crashes import BATCH, Crashes, Store
from tests.support.store.programs.killed import PIN_SECONDS, Told
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
