"""Ids that clients of WebSockets name again: nothing is taken twice, and an id that was given is known."""

from service.process import Settings
from tests.core.responses.test_known_ids_of_responses import assert_duplicate, talking, user
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.sockets import socket


async def test_a_connection_that_remembers_refuses_it_without_the_store(settings: Settings) -> None:
    async with serving(settings, scripted([answer("Yes.")])) as inside, socket(inside.url) as one:
        for options in ({"store": False}, {"store": True}, {"store": False, "generate": False}):
            made = await one.answer("Hello.", **options)
            sent = f"msg_{made['id'][5:]}8000"
            await one.ask([user("Hello.", id=sent)], previous_response_id=made["id"], store=options["store"])
            last = (await one.rest())[-1]
            assert last["type"] == "error", last
            assert_duplicate(last["error"], sent)


async def test_a_connection_that_breaks_goes_on_over_the_next_one(settings: Settings) -> None:
    async with serving(settings, talking()) as inside:
        async with socket(inside.url) as ws:
            await ws.ask("Count.")
            id = (await ws.next())["response"]["id"]
            while (await ws.next())["type"] != "response.output_text.delta":
                pass
        async with socket(inside.url) as ws:
            assert (await ws.answer("Stop.", previous_response_id=id))["previous_response_id"] == id
