"""Items that are sent by their ids alone: those that are stored for this tenant, each once, and no more than a body."""

import httpx
import pytest

from service.harmony import tokens
from service.settings.settings import Settings
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL


async def ids_of(http: httpx.AsyncClient, *texts: str) -> list[str]:
    """The ids of a stored response's input and output."""
    sent = [{"role": "user", "content": text} for text in texts]
    made = (await http.post("/v1/responses", json={"model": MODEL, "input": sent})).json()
    listed = (await http.get(f"/v1/responses/{made['id']}/input_items?order=asc")).json()
    return [item["id"] for item in (*listed["data"], *made["output"])]


async def asked(http: httpx.AsyncClient, *ids: str) -> httpx.Response:
    sent = [*({"type": "item_reference", "id": id} for id in ids), {"role": "user", "content": "And now?"}]
    return await http.post("/v1/responses", json={"model": MODEL, "input": sent})


async def test_what_was_asked_and_answered_is_referred_to_by_its_ids(settings: Settings) -> None:
    engine = scripted([answer("A fine heron.")])
    async with serving(settings, engine) as inside, inside.http() as http:
        assert (await asked(http, *await ids_of(http, "My boat."))).status_code == 200
    prompt = tokens.decode(engine.generations[-1].prompt)

    assert prompt.index("My boat.") < prompt.index("A fine heron.") < prompt.index("And now?")


async def test_stored_items_are_no_longer_than_a_body(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.responses.references.MAX_REFERENCED_BYTES", 1000)
    async with serving(settings, scripted([answer("Ok.")])) as inside, inside.http() as http:
        ids = await ids_of(http, "x" * 600, "y" * 600)
        one, both = await asked(http, ids[0]), await asked(http, *ids)

    assert one.status_code == 200
    error = both.json()["error"]
    assert (both.status_code, error["code"], error["param"]) == (400, "invalid_value", "input")
    assert ids[1] in error["message"]
