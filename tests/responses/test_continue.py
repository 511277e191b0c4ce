"""Conversations: continuing a response, forking it, and referring to its items by their ids."""

from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response

from service.harmony import tokens
from service.settings.settings import Settings
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}


def ask(client: OpenAI, text: str, after: Response | None = None, **options: Any) -> Response:
    return client.responses.create(
        model=MODEL, input=text, previous_response_id=after.id if after else openai.omit, **options
    )


def test_a_fork_never_sees_its_sibling(service: ServiceProcess) -> None:
    client = service.client()
    trunk = ask(client, "My name is Ada.")
    left = ask(client, "The secret word is marmalade.", trunk)
    right = ask(client, "The secret word is periwinkle.", trunk)
    assert "marmalade" in ask(client, "What is the secret word?", left).output_text
    assert "periwinkle" in ask(client, "What is the secret word?", right).output_text
    neither = ask(client, "What is the secret word?", trunk).output_text
    assert "marmalade" not in neither
    assert "periwinkle" not in neither
    assert "Ada" in ask(client, "What is my name?", left).output_text


async def ids_of(http: httpx.AsyncClient, *texts: str) -> list[str]:
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
        assert (await asked_by_ids(http, *await ids_of(http, "My boat."))).status_code == 200
    prompt = tokens.decode(engine.generations[-1].prompt)

    assert prompt.index("My boat.") < prompt.index("A fine heron.") < prompt.index("And now?")


async def test_stored_items_are_no_longer_than_a_body(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.responses.references.MAX_REFERENCED_BYTES", 1000)
    async with serving(settings, scripted([answer("Ok.")])) as inside, inside.http() as http:
        ids = await ids_of(http, "x" * 600, "y" * 600)
        one, both = await asked_by_ids(http, ids[0]), await asked_by_ids(http, *ids)

    assert one.status_code == 200
    error = both.json()["error"]
    assert (both.status_code, error["code"], error["param"]) == (400, "invalid_value", "input")
    assert ids[1] in error["message"]
