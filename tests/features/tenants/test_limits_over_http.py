"""Limits over HTTP with the official SDK: who is over them is refused in words that clients read, and what was reserved
is settled by what was used.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest
from openai import AsyncOpenAI

from service.process import Settings
from store.limits import Check, Limits
from store.spent import Unspent
from tests.support.engine.scripted import Stall
from tests.support.service.background import changed, reached, submitted
from tests.support.service.inside import RETURN, Inside, answer, opened, scripted, serving
from tests.support.service.process import MODEL
from tests.support.waiting import until

CODEX = re.compile(r"(?i)try again in\s*(\d+(?:\.\d+)?)\s*(s|ms|seconds?)")
TENANT = "default"


@asynccontextmanager
async def limited(settings: Settings, **limits: int) -> AsyncIterator[tuple[Inside, AsyncOpenAI]]:
    settings = changed(settings, tenant_limits=limits)
    async with serving(settings, scripted([answer("Hello there.")])) as inside, inside.client() as client:
        yield inside, client


async def left_today(inside: Inside, limit: int = 100_000) -> int:
    """How many tokens of the day's limit are left, of which nothing is taken by looking."""
    limits = Limits(inside.store, held_seconds=60, usual_tokens=0)
    checks = [Check("all", "tokens", "month", limit)]
    id = inside.store.new_id()
    found = await limits.admit(TENANT, id, checks, reads=0, writes=0)
    await limits.settle(TENANT, id, Unspent.NEVER_BEGAN)
    return found.left[0].amount


async def settled(inside: Inside, used: int, limit: int = 100_000) -> None:
    await until(lambda: left_today(inside, limit), wanted=lambda left: left == limit - used)


async def refusal(client: AsyncOpenAI) -> openai.RateLimitError | None:
    try:
        await client.responses.create(model=MODEL, input="Hi", max_output_tokens=16)
    except openai.RateLimitError as error:
        return error
    return None


async def test_headers_say_what_is_left(settings: Settings) -> None:
    async with limited(settings, max_requests_per_1_minute=10, max_tokens_per_1_minute=60_000) as (_, client):
        answered = await client.responses.with_raw_response.create(model=MODEL, input="Hi", max_output_tokens=16)
        headers, read = answered.headers, answered.parse().usage.input_tokens
        assert headers["x-ratelimit-limit-requests"] == "10"
        assert headers["x-ratelimit-remaining-requests"] == "9"
        assert re.fullmatch(r"[56](\.\d+)?s", headers["x-ratelimit-reset-requests"])
        assert headers["x-ratelimit-limit-tokens"] == "60000"
        assert headers["x-ratelimit-remaining-tokens"] == str(60_000 - read - 16)
        assert re.fullmatch(r"\d+ms", headers["x-ratelimit-reset-tokens"])
        streamed = await client.responses.with_raw_response.create(model=MODEL, input="Hi", stream=True)
        assert streamed.headers["x-ratelimit-remaining-requests"] == "8"
        waiting = await client.responses.with_raw_response.create(model=MODEL, input="Hi", background=True)
        assert waiting.headers["x-ratelimit-remaining-requests"] == "7"


async def test_who_is_over_a_limit_is_told_when_to_come_back(settings: Settings) -> None:
    async with limited(settings, max_requests_per_1_minute=2) as (_, client):
        for _ in range(2):
            await client.responses.create(model=MODEL, input="Hi")
        with pytest.raises(openai.RateLimitError) as refused:
            await client.responses.create(model=MODEL, input="Hi")
        error, headers = refused.value, refused.value.response.headers
        assert (error.code, error.type) == ("rate_limit_exceeded", "requests")
        assert re.search(r"requests per min \(RPM\): Limit 2, Used 2, Requested 1\. Please try again in", error.message)
        found = CODEX.search(error.message)
        assert found is not None
        assert 0 < float(found[1]) <= 30
        assert found[2] == "s"
        assert 1 <= int(headers["retry-after"]) <= 30
        assert int(headers["retry-after"]) - 1 <= int(headers["retry-after-ms"]) / 1000 <= int(headers["retry-after"])
        assert headers["x-should-retry"] == "true"
        await client.models.list()  # what samples nothing isn't limited


async def test_a_months_tokens_used_up_are_a_quota_that_is_gone(settings: Settings) -> None:
    async with limited(settings, max_tokens_per_1_month=300) as (_, client):
        while (refused := await refusal(client)) is None:
            pass
        assert (refused.code, refused.type) == ("insufficient_quota", "insufficient_quota")
        assert "You exceeded your current quota" in refused.message
        assert refused.response.headers["x-should-retry"] == "false"
        assert "retry-after" not in refused.response.headers


async def test_what_was_reserved_is_settled_by_what_was_used(settings: Settings) -> None:
    async with limited(settings, max_tokens_per_1_month=100_000, max_parallel_responses=2) as (inside, client):
        used = 0
        for options in ({}, {"store": False}, {"stream": True}, {"max_output_tokens": 16}):
            made = await client.responses.create(model=MODEL, input="Hi", **options)
            if options.get("stream"):
                made = [event async for event in made][-1].response
            used += made.usage.total_tokens
            await settled(inside, used)
        waiting = await submitted(client)
        made = await reached(client, waiting.id, "completed")
        await settled(inside, used + made.usage.total_tokens)


async def test_so_many_are_under_way_at_once(settings: Settings) -> None:
    goes_on = asyncio.Event()
    engine = scripted([opened("Hello"), Stall(goes_on), [RETURN]], [answer("Hello there.")])
    settings = changed(settings, tenant_limits={"max_parallel_responses": 1})
    async with serving(settings, engine) as inside, inside.client() as client:
        stream = await client.responses.create(model=MODEL, input="Hi", stream=True)
        with pytest.raises(openai.RateLimitError, match="responses at once: Limit 1, Used 1"):
            await client.responses.create(model=MODEL, input="Hi")
        goes_on.set()
        assert [event async for event in stream][-1].type == "response.completed"

        assert await until(lambda: refusal(client), wanted=lambda refused: refused is None) is None


async def test_what_is_refused_later_takes_nothing(settings: Settings) -> None:
    async with limited(settings, max_tokens_per_1_month=100_000) as (inside, client):
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model=MODEL, input="Hi", previous_response_id="resp_" + "0" * 48)
        await client.responses.input_tokens.count(model=MODEL, input="Hi")
        await settled(inside, 0)
