"""Many requests at once: each prompt is its own, and what is shared never changes."""

import asyncio

import pytest

from service.engine.port import Generation
from service.harmony.tokens import ASSISTANT, END, MESSAGE, RETURN, START, decode, encode
from service.process import Settings
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.service.streams import parsed
from tests.support.store.counted import usage

SIBLINGS = 64


def user(text: str) -> list[int]:
    """A user's message as it stands in a prompt."""
    return [START, *encode("user"), MESSAGE, *encode(text), END]


def echo(generation: Generation) -> list[list[int]]:
    """Says the user's last words again."""
    words = decode(list(generation.prompt)[:-2]).rpartition("user")[2]
    return [answer(f"You said {words}")]


@pytest.mark.parametrize("stream", [False, True])
async def test_sixty_four_continuations_of_one_response_share_only_its_chain(settings: Settings, stream: bool) -> None:
    said = answer("I am the parent.")
    engine = scripted([said], echo)
    async with serving(settings, engine) as inside, inside.http() as http:
        created = await http.post("/v1/responses", json={"model": MODEL, "input": "parent", "instructions": "Be."})
        parent = f"/v1/responses/{created.json()['id']}"
        body = {"model": MODEL, "previous_response_id": created.json()["id"], "instructions": "Be.", "stream": stream}
        answers = await asyncio.gather(
            *(http.post("/v1/responses", json={**body, "input": f"child {n}"}) for n in range(SIBLINGS))
        )
        assert (await http.get(parent)).content == created.content
        assert (await usage(inside.store)).responses == 1 + SIBLINGS
    responses = [parsed(each.text)[-1]["response"] if stream else each.json() for each in answers]
    prompts = {generation.id: list(generation.prompt) for generation in engine.generations[1:]}
    shared = [*engine.generations[0].prompt, *said[:-1], END]
    assert said[-1] == RETURN
    for n, response in enumerate(responses):
        assert prompts[response["id"]] == [*shared, *user(f"child {n}"), START, ASSISTANT]
        assert response["output"][0]["content"][0]["text"] == f"You said child {n}"


async def test_readers_and_a_deleter_of_one_response_never_see_half_of_it(service: ServiceProcess) -> None:
    async with service.async_client() as client:
        response = await client.responses.create(model=MODEL, input="Count to 50.")
        reads = [client.responses.with_raw_response.retrieve(response.id) for _ in range(16)]
        reads.insert(8, client.responses.with_raw_response.delete(response.id))
        outcomes = await asyncio.gather(*reads, return_exceptions=True)
    for outcome in outcomes:
        assert getattr(outcome, "status_code", None) in (200, 404)
