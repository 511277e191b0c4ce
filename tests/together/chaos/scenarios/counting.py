"""Processes that die between two steps of a response: what it used is what it says, and what it took counts once.

That workers, steered responses and conversations keep to that is checked where they die (Aftermath.check_usage).
"""

from contextlib import suppress
from typing import NamedTuple

import httpx

from service.features.tenants.feature import USUAL_TOKENS
from service.features.tenants.settling import settle_due
from service.responses.service import Service
from store.limits import Check
from store.spent import Unspent
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import TOKENS_PER_SECOND, Scenario, Stage
from tests.support.chaos.inside import WatchedEngine, at_work, opened
from tests.support.chaos.mortal import LIMITED_STEPS, QUESTION, QUEUED_STEPS
from tests.support.chaos.mortals import dead
from tests.support.service.process import MODEL
from tests.support.service.tenants import limits_in
from tests.support.waiting import until

TENANT = "default"
MONTH = Check("all", "tokens", "month", 1_000_000)
LIMITS = {"max_tokens_per_1_month": MONTH.limit, "max_parallel_responses": 5}
SECONDS = 60.0


async def used_this_month(service: Service) -> int:
    """How many tokens of the month are used, of which nothing is taken by looking."""
    limits, id = limits_in(service), service.store.new_id()
    found = await limits.admit(TENANT, id, [MONTH], reads=0, writes=0)
    await limits.settle(TENANT, id, Unspent.NEVER_BEGAN)
    return MONTH.limit - found.left[0].amount


async def later(service: Service) -> None:
    """As if the time had come to look at what is reserved, again and again, until nothing is left to be settled."""
    (shard,) = service.store.keyspace.all_shards()

    async def settled() -> bool:
        async with service.store.server.operation() as operation:
            for member in await operation.command("ZRANGE", shard.reservations, 0, -1):
                await operation.command("ZADD", shard.reservations, "XX", 0, member)
        return await settle_due(limits_in(service)) == 0

    await until(settled, SECONDS)


class Limited(NamedTuple):
    """A step of a response within limits at which its process dies."""

    step: str
    background: bool = False


async def die_within_limits(stage: Stage, death: Limited) -> None:
    """The counts after a response's process has died at a step, and others have looked."""
    settings = stage.settings(tenant_limits=LIMITS)
    pid, url = await stage.program.serve(settings, death.step)
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS, trust_env=False) as http:
        with suppress(httpx.TransportError):  # which dies amid it
            asked = {"model": MODEL, "input": QUESTION, "background": death.background}
            await http.post("/v1/responses", json=asked)
    await until(lambda: dead(pid), SECONDS)
    async with Aftermath(settings) as aftermath, opened(settings, WatchedEngine(TOKENS_PER_SECOND)) as service:
        reserved = await used_this_month(service)
        if death.background and death.step != "submitting":
            async with at_work(service):
                await until(aftermath.used, SECONDS, wanted=lambda used: bool(used))
        await later(service)
        sums = (await aftermath.used()).get(TENANT)
        counted = await used_this_month(service)
        if sums is not None:
            assert counted == sums.input_tokens + sums.output_tokens
        elif death.step == "admitting":
            assert (reserved, counted) == (0, 0)
        else:  # nobody knows how much of it was sampled
            assert counted == reserved > USUAL_TOKENS
        await later(service)
        assert await used_this_month(service) == counted


LIMITED = [*(Limited(step) for step in LIMITED_STEPS), *(Limited(step, background=True) for step in QUEUED_STEPS)]

WITHIN_LIMITS = Scenario(die_within_limits, LIMITED, pushed=Limited("appended"))
