"""Parameters of sampling, as the engine gets them."""

from typing import Any

import openai
import pytest

from service.process import Settings, load_settings
from service.settings.core import parse_api_keys
from tests.support.service.background import changed, ended, submitted
from tests.support.service.inside import answer, scripted, serving, then, thought
from tests.support.service.process import ACME_KEY, GLOBEX_KEY
from tests.support.service.seen import ask, made, streamed

ASKED: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.25,
    "seed": -7,
    "top_k": 40,
    "min_p": 0.125,
    "presence_penalty": 1.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.25,
}


async def test_the_engine_samples_as_the_request_says_in_front_and_in_the_background(settings: Settings) -> None:
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        found = await made(inside, input="Hi", max_output_tokens=99, **ASKED)
        await ended(client, (await submitted(client, "Hi", max_output_tokens=99, extra_body=ASKED)).id)

    for generation in engine.generations:
        assert {name: getattr(generation.sampling, name) for name in ASKED} == ASKED
        assert generation.sampling.max_tokens == 99
    echoed = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
    assert {name: found[name] for name in echoed} == {name: ASKED[name] for name in echoed}


async def test_what_is_left_out_is_the_model_s_own(settings: Settings) -> None:
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside:
        await made(inside, input="Hi", top_k=-1)
        await made(inside, input="Hi", **dict.fromkeys(ASKED))

    for generation in engine.generations:
        sampling = generation.sampling
        assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (1.0, 1.0, 0, 0.0)
        assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (0, 0, 1)
        assert sampling.seed is None
        assert generation.priority == 0


@pytest.mark.parametrize(
    ("stop", "text"),
    [("three", "One, two, "), (["four", ", t"], "One"), ([], "One, two, three."), ("1", "One, two, three.")],
)
async def test_an_answer_ends_before_a_stop_and_a_thought_does_not(settings: Settings, stop: Any, text: str) -> None:
    engine = scripted([[token] for token in [*thought("One, two, three, four."), *then(answer("One, two, three."))]])
    async with serving(settings, engine) as inside:
        events = await streamed(inside, input="Count.", stop=stop)

    reasoning, message = events[-1]["response"]["output"]
    assert reasoning["content"][0]["text"] == "One, two, three, four."
    assert (message["content"][0]["text"], message["status"]) == (text, "completed")
    assert events[-1]["type"] == "response.completed"


async def test_a_salt_keeps_cached_prefixes_apart_and_a_tenant_s_are_its_own_anyway(settings: Settings) -> None:
    keys = f"acme:{ACME_KEY},globex:{GLOBEX_KEY}"
    two = load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, api_keys=keys)
    engine = scripted([answer("Fine.")])
    async with serving(two, engine) as inside:
        for key, body in [(ACME_KEY, {}), (ACME_KEY, {}), (GLOBEX_KEY, {}), (ACME_KEY, {"cache_salt": "a"})]:
            await streamed(inside, key, input="Hi", **body)
        await streamed(inside, GLOBEX_KEY, input="Hi", cache_salt="a")

    mine, again, theirs, salted, theirs_salted = [generation.cache_salt for generation in engine.generations]
    assert mine == again
    assert len({mine, theirs, salted, theirs_salted}) == 4


TIERS: dict[str, tuple[Any, int, str]] = {
    "nothing": ({}, 0, "default"),
    "auto": ({"service_tier": "auto"}, 0, "default"),
    "scale": ({"service_tier": "scale"}, 0, "default"),
    "ultrafast": ({"service_tier": "ultrafast"}, 0, "default"),
    "flex": ({"service_tier": "flex"}, 1, "flex"),
    "priority": ({"service_tier": "priority"}, -1, "priority"),
    "a number": ({"priority": 7}, 7, "default"),
    "a number above a tier": ({"priority": 7, "service_tier": "priority"}, 7, "priority"),
    "zero above a tier": ({"priority": 0, "service_tier": "flex"}, 0, "flex"),
}


async def test_a_tier_or_a_number_is_the_engine_s_priority(settings: Settings) -> None:
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        found = [await made(inside, input="Hi", **body) for body, _, _ in TIERS.values()]
        await ended(client, (await submitted(client, "Hi", service_tier="flex")).id)

    assert [response["service_tier"] for response in found] == [tier for _, _, tier in TIERS.values()]
    asked = [generation.priority for generation in engine.generations]
    assert asked == [*(number for _, number, _ in TIERS.values()), 1]


async def test_nobody_goes_before_other_tenants_but_those_who_may(settings: Settings) -> None:
    keys = parse_api_keys(f"acme:{ACME_KEY},globex:{GLOBEX_KEY}")
    engine = scripted([answer("Fine.")])
    async with serving(changed(settings, api_keys=keys, priority_tenants=("acme",)), engine) as inside:
        found = [
            (await streamed(inside, key, input="Hi", service_tier=tier))[-1]["response"]["service_tier"]
            for key in (ACME_KEY, GLOBEX_KEY)
            for tier in ("priority", "fast", "flex")
        ]
        await streamed(inside, ACME_KEY, input="Hi", priority=-9)
        await streamed(inside, GLOBEX_KEY, input="Hi", priority=9)
        async with inside.client(GLOBEX_KEY) as globex:
            with pytest.raises(openai.BadRequestError, match="overtake other tenants'") as refusal:
                await ask(globex, input="Hi", extra_body={"priority": -1})

    assert found == ["priority", "priority", "flex", "default", "default", "flex"]
    assert [generation.priority for generation in engine.generations] == [-1, -1, 1, 0, 0, 1, -9, 9]
    assert (refusal.value.code, refusal.value.param) == ("invalid_value", "priority")


async def test_turns_of_one_conversation_go_to_one_server_unless_a_cache_key_says_which(settings: Settings) -> None:
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside:
        first = await made(inside, input="Hi")
        second = await made(inside, input="And?", previous_response_id=first["id"])
        await made(inside, input="Hi", prompt_cache_key="boats")

    assert [generation.affinity for generation in engine.generations] == [first["id"], first["id"], "boats"]
    assert second["prompt_cache_key"] is None
