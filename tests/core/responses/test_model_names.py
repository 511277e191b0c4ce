"""The names of the one model that is served, and requests without any."""

import openai
import pytest

from service.engine.engines import names_of
from service.process import Settings, load_settings
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL


@pytest.mark.parametrize(
    ("id", "aliases", "names"),
    [
        ("gpt-oss-20b", (), ("gpt-oss-20b", "openai/gpt-oss-20b")),
        ("openai/gpt-oss-120b", (), ("openai/gpt-oss-120b", "gpt-oss-120b")),
        ("acme/gpt-oss-20b", (), ("acme/gpt-oss-20b",)),
        ("tiny", ("gpt-4o", "tiny"), ("tiny", "gpt-4o")),
    ],
)
def test_a_model_has_its_id_what_hugging_face_calls_it_and_what_is_set(
    id: str, aliases: tuple[str, ...], names: tuple[str, ...]
) -> None:
    assert names_of(id, aliases) == names


async def test_each_name_is_served_listed_and_echoed_and_the_engine_hears_one(settings: Settings) -> None:
    engine = scripted([answer("Fine.")])
    named = settings.model_copy(update={"model_aliases": ("gpt-4o",)})
    async with serving(named, engine) as inside, inside.client() as client:
        listed = [model.id async for model in client.models.list()]
        found = [(await client.responses.create(model=name, input="Hi")).model for name in listed]
        with pytest.raises(openai.NotFoundError) as refusal:
            await client.responses.create(model="gpt-9", input="Hi")
        retrieved = await client.models.retrieve("gpt-4o")
    assert found == listed == [engine.model.id, f"openai/{engine.model.id}", "gpt-4o"]
    assert {each.model for each in engine.generations} == {engine.model.id}
    assert retrieved.id == "gpt-4o"
    assert "HARMONIUM_MODEL_ALIASES" in refusal.value.message


@pytest.mark.parametrize("stream", [False, True])
async def test_the_demo_engine_answers_whatever_it_is_called(settings: Settings, stream: bool) -> None:
    async with serving(settings) as inside, inside.client() as client, inside.http() as http:
        listed = {model.id: (model.model_extra or {})["root"] async for model in client.models.list()}
        answers = [
            await http.post("/v1/responses", json={"model": name, "input": "Hi", "stream": stream}) for name in listed
        ]
    assert listed == dict.fromkeys(("demo", MODEL, f"openai/{MODEL}"), "demo")
    assert [each.headers["x-harmonium-engine"] for each in answers] == ["demo"] * 3
    assert all(f'"model":"{name}"' in each.text for name, each in zip(listed, answers, strict=True))


async def test_a_demo_engine_that_is_named_answers_by_its_own_name_alone(settings: Settings) -> None:
    """So in compose.yaml, where a vLLM may run beside it."""
    named = load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, engine="demo")
    async with serving(named) as inside, inside.client() as client:
        with pytest.raises(openai.NotFoundError) as refusal:
            await client.responses.create(model=MODEL, input="Hi")
        listed = [model.id async for model in client.models.list()]
        answered = await client.responses.create(model="demo", input="Hi")
    assert (listed, answered.model) == (["demo"], "demo")
    assert "this service serves 'demo'. That is the demo engine, without a real model" in refusal.value.message
    assert "HARMONIUM_ENGINE" in refusal.value.message


async def test_hosted_tools_are_refused_where_a_setting_says_so(settings: Settings) -> None:
    strict = settings.model_copy(update={"unsupported": "refuse"})
    body = {"model": MODEL, "input": "Hi", "tools": [{"type": "web_search"}]}
    async with serving(strict, scripted([answer("Fine.")])) as inside, inside.http() as http:
        body["model"] = (await http.get("/v1/models")).json()["data"][0]["id"]
        refused = await http.post("/v1/responses", json=body)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], error["code"]) == ("tools", "unsupported_parameter")
