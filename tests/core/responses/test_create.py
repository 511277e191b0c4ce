"""Creating a response in one piece: what comes back, what each parameter does, and how others refer to it."""

from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response

from service.harmony import tokens
from service.process import Settings
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess

KEYS = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "max_output_tokens",
    "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key",
}  # fmt: skip


def test_an_answer_comes_with_its_reasoning_and_its_cost(service: ServiceProcess) -> None:
    response = service.client().responses.create(model=MODEL, input="Count to 3.")
    assert response.status == "completed"
    assert response.output_text.split() == ["1", "2", "3"]
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert 0 < response.usage.output_tokens_details.reasoning_tokens < response.usage.output_tokens


def test_every_key_of_the_response_is_there(service: ServiceProcess) -> None:
    body = service.http().post("/v1/responses", json={"model": MODEL, "input": "hi"}).json()
    assert body.keys() == KEYS
    assert body["object"] == "response"
    assert body["completed_at"] >= body["created_at"]
    assert body["error"] is body["incomplete_details"] is body["previous_response_id"] is None


def test_the_response_echoes_what_was_asked_for(service: ServiceProcess) -> None:
    sampled = {"temperature": 0.5, "top_p": 0.25, "max_output_tokens": 64, "parallel_tool_calls": False}
    named = {
        "instructions": "Be brief.",
        "metadata": {"ticket": "42"},
        "safety_identifier": "me",
        "prompt_cache_key": "x",
    }
    asked: Any = sampled | named | {"reasoning": {"effort": "low"}}
    response = service.client().responses.create(model=MODEL, input="hi", **asked).to_dict()
    echoed = {name: response[name] for name in asked} | {"reasoning": {"effort": response["reasoning"]["effort"]}}  # type: ignore[index]
    assert echoed == asked


def test_too_small_a_budget_leaves_it_incomplete(service: ServiceProcess) -> None:
    response = service.client().responses.create(model=MODEL, input="Count to 1000.", max_output_tokens=40)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None
    assert response.usage.output_tokens == 40
    assert response.output[-1].to_dict()["status"] == "incomplete"


def test_what_is_not_stored_can_not_be_found(service: ServiceProcess) -> None:
    client = service.client()
    response = client.responses.create(model=MODEL, input="hi", store=False)
    assert response.to_dict()["store"] is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError) as refusal:
        client.responses.create(model=MODEL, input="hi", previous_response_id=response.id)
    assert refusal.value.code == "previous_response_not_found"


def test_defaults_and_nulls_are_as_good_as_nothing(service: ServiceProcess) -> None:
    defaults = {"tool_choice": "auto", "truncation": "disabled", "include": [], "background": False, "top_logprobs": 0}
    nulls = dict.fromkeys(("conversation", "prompt", "instructions", "tools", "metadata", "stream", "text"))
    harmless = {"user": "somebody", "client_metadata": {"a": [1]}, "prompt_cache_retention": "24h"}
    body = {"model": MODEL, "input": "hi", "service_tier": "auto", **defaults, **nulls, **harmless}
    answer = service.http().post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text


def test_every_answer_has_the_headers_that_clients_read(service: ServiceProcess) -> None:
    raw = service.client().responses.with_raw_response.create(model=MODEL, input="hi")
    assert raw.headers["content-type"] == "application/json"
    assert raw.headers["openai-version"] == "2020-10-01"
    assert int(raw.headers["openai-processing-ms"]) >= 0
    assert raw.parse()._request_id == raw.headers["x-request-id"]
    other = service.client().responses.with_raw_response.create(model=MODEL, input="hi")
    assert other.headers["x-request-id"] != raw.headers["x-request-id"]


def test_a_fork_never_sees_its_sibling(service: ServiceProcess) -> None:
    client = service.client()

    def ask(text: str, after: str | None = None) -> Response:
        return client.responses.create(model=MODEL, input=text, previous_response_id=after)

    trunk = ask("My name is Ada.").id
    words = ("marmalade", "periwinkle")
    branches = [ask(f"The secret word is {word}.", trunk).id for word in words]
    told = [ask("What is the secret word?", branch).output_text for branch in (*branches, trunk)]
    assert [[word in each for word in words] for each in told] == [[True, False], [False, True], [False, False]]
    assert "Ada" in ask("What is my name?", branches[0]).output_text


async def item_ids(http: httpx.AsyncClient, *texts: str) -> list[str]:
    """The ids of a stored response's input and output."""
    sent = [{"role": "user", "content": text} for text in texts]
    made = (await http.post("/v1/responses", json={"model": MODEL, "input": sent})).json()
    listed = (await http.get(f"/v1/responses/{made['id']}/input_items?order=asc")).json()
    return [item["id"] for item in (*listed["data"], *made["output"])]


async def asked_by_ids(http: httpx.AsyncClient, *ids: str) -> httpx.Response:
    sent = [*({"type": "item_reference", "id": id} for id in ids), {"role": "user", "content": "And now?"}]
    return await http.post("/v1/responses", json={"model": MODEL, "input": sent})


async def test_what_was_asked_and_answered_is_referred_to_by_its_ids(settings: Settings) -> None:
    engine = scripted([answer("A fine heron.")])
    async with serving(settings, engine) as inside, inside.http() as http:
        assert (await asked_by_ids(http, *await item_ids(http, "My boat."))).status_code == 200
    prompt = tokens.decode(engine.generations[-1].prompt)

    assert prompt.index("My boat.") < prompt.index("A fine heron.") < prompt.index("And now?")


async def test_stored_items_are_no_longer_than_a_body(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.responses.references.MAX_REFERENCED_BYTES", 1000)
    async with serving(settings, scripted([answer("Ok.")])) as inside, inside.http() as http:
        ids = await item_ids(http, "x" * 600, "y" * 600)
        one, both = await asked_by_ids(http, ids[0]), await asked_by_ids(http, *ids)

    assert one.status_code == 200
    error = both.json()["error"]
    assert (both.status_code, error["code"], error["param"]) == (400, "invalid_value", "input")
    assert ids[1] in error["message"]
