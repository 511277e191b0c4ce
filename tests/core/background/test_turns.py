"""Turns: whatever a tenant's requests say, another tenant's background response is begun when its turn comes."""

import re
from typing import Any

import pytest

from service.process import Settings
from service.settings.core import parse_api_keys
from tests.support.service.background import changed, reached
from tests.support.service.inside import Inside, answer, opened, scripted, serving
from tests.support.service.process import ACME_KEY as ACME
from tests.support.service.process import GLOBEX_KEY as GLOBEX
from tests.support.service.process import MODEL
from tests.support.service.steered import Paused
from tests.support.waiting import until

MANY = 5
SECONDS = 10.0

PLAIN = {"background": True}
SAYINGS: dict[str, dict[str, Any]] = {
    "nothing": PLAIN,
    "a stream": PLAIN | {"stream": True},
    "a stream that goes on": {"stream": True},
    "a tier": PLAIN | {"service_tier": "priority"},
    "a fast tier": PLAIN | {"service_tier": "fast"},
    "a low tier": PLAIN | {"service_tier": "flex"},
    "a number": PLAIN | {"priority": 0},
    "hours": PLAIN | {"background_options": {"completion_window": "2h"}},
    "more hours": PLAIN | {"background_options": {"completion_window": "8h"}},
    "one continuation": PLAIN | {"background_options": {"continuation_id": "nightly"}},
    "a continuation that goes on": {"stream": True, "background_options": {"continuation_id": "nightly"}},
    "a conversation": PLAIN | {"conversation": "a new one"},
    "a response that it continues": PLAIN | {"previous_response_id": "an old one"},
}
"""The words of each request of the tenant that floods."""


def of_two(settings: Settings, **changes: Any) -> Settings:
    """The settings of a service that has two tenants."""
    return changed(settings, api_keys=parse_api_keys(f"acme:{ACME},globex:{GLOBEX}"), worker_concurrency=1, **changes)


async def asked(inside: Inside, key: str, **body: Any) -> str:
    """The id of a response that is queued; its client goes at once."""
    headers = {"authorization": f"Bearer {key}"} | ({} if "background" in body else {"x-harmonium-detach": "true"})
    async with inside.http() as http:
        if "conversation" in body:
            body["conversation"] = (await http.post("/v1/conversations", json={}, headers=headers)).json()["id"]
        if "previous_response_id" in body:
            said = await http.post("/v1/responses", json={"model": MODEL, "input": "hi"}, headers=headers)
            body["previous_response_id"] = said.json()["id"]
        request = {"model": MODEL, "input": "hi", **body}
        async with http.stream("POST", "/v1/responses", json=request, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            text = ""
            async for piece in response.aiter_text():
                text += piece
                if found := re.search(r'"id":"(resp_[0-9a-f]{48})"', text):
                    return found[1]
    raise AssertionError(text)


async def begun(settings: Settings, flood: dict[str, Any], one: dict[str, Any]) -> list[str]:
    """The tenants of the first two responses that are begun, where one tenant floods before another asks once."""
    engine = scripted([answer("Hello.")])
    async with serving(of_two(settings, embedded_worker=False), scripted([answer("Hello.")])) as waiting:
        for _ in range(MANY):
            await asked(waiting, ACME, **flood)
        await asked(waiting, GLOBEX, **one)
    async with serving(of_two(settings), engine):
        await until(lambda: len(engine.generations) >= 2, SECONDS)
    return [generation.tenant for generation in engine.generations[:2]]


@pytest.mark.parametrize("said", SAYINGS.values(), ids=SAYINGS)
async def test_what_a_flood_says_keeps_no_plain_response_of_another_tenant_waiting(
    settings: Settings, said: dict[str, Any]
) -> None:
    assert "globex" in await begun(settings, said, PLAIN)


@pytest.mark.parametrize(
    ("flood", "one"),
    [("nothing", "a low tier"), ("a stream that goes on", "a low tier"), ("hours", "more hours")],
)
async def test_what_a_tenant_says_of_its_own_costs_it_no_turn(settings: Settings, flood: str, one: str) -> None:
    assert "globex" in await begun(settings, SAYINGS[flood], SAYINGS[one])


async def test_a_stream_that_goes_on_is_before_all_others_of_its_own_tenant(settings: Settings) -> None:
    engine = scripted([answer("Hello.")])
    async with serving(of_two(settings, embedded_worker=False), scripted([answer("Hello.")])) as waiting:
        for _ in range(MANY):
            await asked(waiting, ACME, **PLAIN)
        id = await asked(waiting, ACME, stream=True)
    async with serving(of_two(settings), engine) as inside, inside.client(ACME) as client:
        await reached(client, id, "completed")
    assert engine.generations[0].id == id


async def test_what_goes_on_from_a_steer_waits_for_another_tenant_s_turn(settings: Settings) -> None:
    paused = Paused(opened("One, two"))
    engine = scripted(paused, [answer("Hello.")])
    async with serving(of_two(settings), engine) as inside, inside.http() as http:
        steered = await asked(inside, ACME, stream=True)
        await paused.reached.wait()
        for _ in range(MANY):
            await asked(inside, ACME, stream=True)
        other = await asked(inside, GLOBEX, **PLAIN)
        headers = {"authorization": f"Bearer {ACME}"}
        told = await http.post(f"/v1/responses/{steered}/steer", json={"input": "Be brief."}, headers=headers)
        assert told.status_code == 200, told.text
        await until(lambda: len(engine.generations) >= 2, SECONDS)
    assert engine.generations[1].id == other


async def test_what_has_hours_fills_no_place_of_what_waits_for_seconds(settings: Settings) -> None:
    async with (
        serving(of_two(settings, embedded_worker=False, max_queued_responses=16), scripted([])) as inside,
        inside.http() as http,
    ):
        hours = {"model": MODEL, "input": "hi", **SAYINGS["more hours"]}
        headers = {"authorization": f"Bearer {ACME}"}
        answers = [await http.post("/v1/responses", json=hours, headers=headers) for _ in range(9)]
        assert [each.status_code for each in answers] == [*[200] * 8, 429]
        error = answers[-1].json()["error"]
        assert (error["code"], error["message"][:61]) == (
            "queue_full",
            "8 background responses with a completion window are waiting. ",
        )
        for _ in range(8):
            await asked(inside, GLOBEX, **PLAIN)
