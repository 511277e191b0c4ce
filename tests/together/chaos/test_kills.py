"""A storm of responses while processes are killed, frozen or replaced, their Redis is killed, or all of that happens in
any order and answers are cancelled: each time it costs a pause, and no event and no token.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.fleet import Fleet, Member, running
from tests.support.chaos.inside import answer, counted
from tests.support.chaos.storm import LEASE_SECONDS, SETTINGS, SETTLE_SECONDS, Storm, storm
from tests.support.waiting import until

EVENTS_A_NUMBER = 2
"""About how many events a number makes; kills are spread by it."""

MOST_SECONDS_AWAY = 3.0
LONG_LEASES: dict[str, Any] = {"lease_seconds": 60.0, "max_attempts": 1, "store_timeout_seconds": 10.0}
"""A job that waits for the end of a lease waits for too long there, and an attempt that counts is the last."""

RETRIED = (500, 502, 503)

PAUSE_SECONDS = 10.0
"""The longest that a follower may wait. It is well below 1 s where the cores aren't busy with the starts of others."""

pytestmark = pytest.mark.timeout(300)


class Size(NamedTuple):
    """How many responses count to which number, and how often there is trouble."""

    responses: int
    numbers: int
    times: int


async def kill(fleet: Fleet, storm: Storm, size: Size) -> None:
    """Kill members and start them again, spread over the storm, with chance in between."""
    events = size.responses * size.numbers * EVENTS_A_NUMBER
    for number in range(size.times):
        await storm.seen_by_all(events * (number + fleet.chance.random()) / size.times)
        victim = fleet.chance.choice([member for member in fleet.members if member.alive])
        fleet.kill(victim)
        fleet.launch(victim)


async def kill_the_store(fleet: Fleet, storm: Storm, size: Size) -> None:
    """Kill Redis, and start it again on its folder."""
    for _ in range(size.times):
        await storm.speaking(fleet.chance.randint(20, 60))
        fleet.kill(fleet.store)
        await asyncio.sleep(fleet.chance.uniform(0, MOST_SECONDS_AWAY))  # for so long it is away
        fleet.launch(fleet.store)
        await fleet.store.ready()


async def freeze(fleet: Fleet, storm: Storm, size: Size) -> None:
    """Let a worker stand still until the other has gone on with all of its work, and then wake it."""
    holder, other = fleet.workers
    await storm.speaking()
    fleet.wake(other)
    for _ in range(size.times):
        fleet.freeze(holder)
        await storm.speaking(fleet.chance.randint(5, 30))
        fleet.wake(holder)
        before = outcomes(holder).count("lost")
        await until(
            lambda worker=holder, seen=before: outcomes(worker).count("lost") > seen, SETTLE_SECONDS, "it isn't refused"
        )
        holder, other = other, holder


def outcomes(worker: Member) -> list[str]:
    """How a worker's attempts ended, as it logged them."""
    logged = [json.loads(line) for line in worker.log.splitlines() if line.startswith("{")]
    return [line["outcome"] for line in logged if line["message"] == "attempt"]


async def replace(fleet: Fleet, storm: Storm, size: Size) -> None:
    """Replace every process, one after another."""
    for _ in range(size.times):
        for member in fleet.chance.sample(fleet.members, len(fleet.members)):
            await storm.speaking(10)
            assert await fleet.restart(member) == 0, member.log


async def anything(fleet: Fleet, storm: Storm, size: Size) -> None:
    """Have all kinds of trouble, in another order each time: each is over before the next one begins."""
    cancelled: set[str] = set()
    kinds = ["kill", "kill", "kill the store", "freeze", "replace", "cancel", "cancel"]
    order: list[str] = []
    for number in range(size.times):
        await storm.seen_by_all(size.responses * size.numbers * EVENTS_A_NUMBER * number / size.times / 2)
        order = order or fleet.chance.sample(kinds, len(kinds))
        victim = fleet.chance.choice(fleet.members)
        match order.pop():
            case "kill":
                fleet.kill(victim)
                fleet.launch(victim)
            case "kill the store":
                fleet.kill(fleet.store)
                fleet.launch(fleet.store)
                await fleet.store.ready()
            case "freeze":
                fleet.freeze(victim)
                await asyncio.sleep(fleet.chance.uniform(0, 2 * LEASE_SECONDS))  # for so long it stands still
                fleet.wake(victim)
            case "replace":
                await fleet.restart(victim)
            case _:
                cancelled |= await cancel(fleet, fleet.chance.choice([each.id for each in storm.followers]))
    await storm.over(900)
    await check_cancelled(fleet, storm, cancelled, counted(size.numbers))


async def cancel(fleet: Fleet, id: str | None) -> set[str]:
    """Cancel a response by whichever API answers; its id, if it had not ended, or was not known."""
    fleet.note(f"cancel {id}")
    while id is not None:
        url = fleet.chance.choice(fleet.apis).url
        try:
            async with httpx.AsyncClient(base_url=url, timeout=10, trust_env=False, verify=False) as http:
                reply = await http.post(f"/v1/responses/{id}/cancel", headers={"content-type": "application/json"})
        except httpx.TransportError:
            await asyncio.sleep(0.05)
            continue
        if reply.status_code in RETRIED:
            await asyncio.sleep(0.05)
            continue
        assert reply.status_code in (200, 400), reply.text
        return {id} if reply.status_code == 200 else set()
    return set()


async def check_cancelled(fleet: Fleet, storm: Storm, cancelled: set[str], whole: str) -> None:
    """A cancelled one says the beginning of the answer, any other says all of it; and nothing else is left."""
    for each in storm.followers:
        assert each.response["status"] == ("cancelled" if each.id in cancelled else "completed"), each.id
    async with Aftermath(fleet.settings) as aftermath:
        await until(aftermath.ended, SETTLE_SECONDS, "jobs are left")
        ids = await aftermath.ids()
        await aftermath.check(ids)
        for id in ids:
            response = await aftermath.response(id)
            said = answer(response) if len(response.output) > 1 else ""
            assert said == (whole[: len(said)] if id in cancelled else whole), id


class Scenario(NamedTuple):
    """A kind of trouble, the sizes of its short and its long form, and how its fleet differs from others."""

    trouble: Callable[[Fleet, Storm, Size], Awaitable[None]]
    short: Size
    long: Size
    settings: dict[str, Any] = {}


SCENARIOS = [
    Scenario(kill, Size(12, 200, 6), Size(50, 2000, 20)),
    Scenario(kill_the_store, Size(6, 150, 2), Size(50, 2000, 10)),
    Scenario(freeze, Size(6, 150, 1), Size(50, 2000, 5)),
    Scenario(replace, Size(5, 250, 1), Size(50, 2000, 3), LONG_LEASES),
    # a store that syncs each write can't forget what was cancelled; see docs/operating.md for one that doesn't
    Scenario(anything, Size(8, 150, 10), Size(30, 1000, 60), {"fsync": "always"}),
]

PUSHED = (freeze, replace, anything)


def size_of(number: int, *, long: bool) -> Any:
    """A scenario with one of its sizes, as a row of a table."""
    scenario = SCENARIOS[number]
    marks = [pytest.mark.full, pytest.mark.timeout(1800)] if long or scenario.trouble not in PUSHED else []
    size = scenario.long if long else scenario.short
    return pytest.param(
        scenario, size, number + 20 * long, id=f"{scenario.trouble.__name__}-{'long' if long else 'short'}", marks=marks
    )


async def survive(folder: Path, scenario: Scenario, size: Size, seed: int) -> None:
    async with running(folder, seed, **SETTINGS | scenario.settings) as fleet:
        if scenario.trouble is freeze:  # all work is one worker's at first
            fleet.freeze(fleet.workers[1])
        async with storm(fleet, size.responses, size.numbers) as under_way:
            await scenario.trouble(fleet, under_way, size)
            await under_way.over(900)
            if scenario.trouble is not anything:
                await under_way.check()
            await under_way.check_usage()
        connections = [each.connections for each in under_way.followers]
        if scenario.trouble is kill:
            assert sum(connections) > size.responses, fleet.history
        if scenario.trouble in (kill_the_store, freeze):
            assert {*connections} == {1}
        if scenario.trouble is freeze:
            await until(lambda: sum(outcomes(each).count("ended") for each in fleet.workers) == size.responses)
        if scenario.trouble is replace:
            assert max(each.longest_pause for each in under_way.followers) < PAUSE_SECONDS, fleet.history


@pytest.mark.parametrize(
    ("scenario", "size", "seed"), [size_of(number, long=long) for long in (False, True) for number in range(5)]
)
async def test_trouble_costs_a_pause_and_no_event(tmp_path: Path, scenario: Scenario, size: Size, seed: int) -> None:
    await survive(tmp_path, scenario, size, seed)
