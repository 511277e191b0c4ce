"""Limits of responses whose process dies between two steps of being let begin and being settled: no token is counted
twice, and none that was sampled never.
"""

from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from service import app
from service.background.tasks import settle_due
from service.process import USUAL_TOKENS, open_service
from service.responses.service import Service
from service.settings.settings import Settings, load_settings
from store.limits import Check, Unspent
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import each_dies, shaky_store
from tests.support.chaos.inside import WatchedEngine, at_work, opened
from tests.support.chaos.mortal import LIMITED_STEPS, QUESTION, QUEUED_STEPS
from tests.support.chaos.mortals import Mortals, dead
from tests.support.chaos.watched import watched
from tests.support.service.inside import serving
from tests.support.service.process import MODEL
from tests.support.waiting import until

TENANT = "default"
MONTH = Check("all", "tokens", "month", 1_000_000)
TOKENS_PER_SECOND = 400
SECONDS = 60.0
LIMITS = {"max_tokens_per_1_month": MONTH.limit, "max_parallel_responses": 5}
PATIENT = {"lease_seconds": 30.0, "store_timeout_seconds": 10.0, "demo_tokens_per_second": TOKENS_PER_SECOND}
"""Nobody gives up while a store starts on a busy machine."""

pytestmark = pytest.mark.timeout(180)


async def asked(program: Mortals, settings: Settings, step: str, *, background: bool) -> None:
    """A response that is asked for until the process that serves it dies at a step."""
    pid, url = await program.serve(settings, step)
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS, trust_env=False) as http:
        with suppress(httpx.TransportError):  # which dies amid it
            await http.post("/v1/responses", json={"model": MODEL, "input": QUESTION, "background": background})
    await until(lambda: dead(pid), SECONDS, f"it doesn't die {step}")


async def used_this_month(service: Service) -> int:
    """How many tokens of the day are used, of which nothing is taken by looking."""
    limits, id = service.tenants.limiter.limits, service.store.new_id()
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
        return await settle_due(service.tenants.limiter.limits) == 0

    await until(settled, SECONDS)


async def die_at(program: Mortals, settings: Settings, step: str, *, background: bool) -> None:
    """What is counted once a response's process has died at a step, and others have looked."""
    await asked(program, settings, step, background=background)
    async with Aftermath(settings) as aftermath, opened(settings, WatchedEngine(TOKENS_PER_SECOND)) as service:
        reserved = await used_this_month(service)
        if background and step != "submitting":
            async with at_work(service):
                await until(aftermath.used, SECONDS, wanted=lambda used: bool(used))
        await later(service)
        sums = (await aftermath.used()).get(TENANT)
        counted = await used_this_month(service)
        if sums is not None:
            assert counted == sums.input_tokens + sums.output_tokens
        elif step == "admitting":
            assert (reserved, counted) == (0, 0)
        else:  # nobody knows how much of it was sampled
            assert counted == reserved > USUAL_TOKENS
        await later(service)
        assert await used_this_month(service) == counted


@pytest.mark.parametrize(("background", "steps"), [(False, LIMITED_STEPS), (True, QUEUED_STEPS)])
async def test_what_a_response_took_is_counted_once_wherever_its_process_dies(
    part: Any, background: bool, steps: tuple[str, ...]
) -> None:
    await each_dies(steps, partial(die_at, background=background), partial(part, tenant_limits=LIMITS))


async def test_what_a_response_took_is_counted_once_wherever_the_store_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = 0
    async with shaky_store(tmp_path, "everysec", 5) as outages:
        settings = load_settings(redis_url=outages.url, tenant_limits=LIMITS, **PATIENT)
        monkeypatch.setattr(app, "open_service", lambda *given: watched(open_service(*given), outages.at))
        async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.http() as http:
            for amid, step in product((False, True), LIMITED_STEPS):
                outages.order(step, amid=amid)
                answer = await http.post("/v1/responses", json={"model": MODEL, "input": QUESTION})
                assert answer.status_code == 200, (step, answer.text)
                took += answer.json()["usage"]["total_tokens"]
                await outages.over()
        async with opened(settings, WatchedEngine(TOKENS_PER_SECOND)) as service:
            await later(service)
            assert await used_this_month(service) == took
