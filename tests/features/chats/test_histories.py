"""A client that sends its whole history goes on in the conversation that it means, where an operator wants that."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from service.engine.port import EngineError, Finish
from service.harmony.tokens import decode
from service.process import Settings, load_settings
from tests.core.responses.test_known_ids_of_responses import ask, user
from tests.core.web.test_health import stopped
from tests.support.engine.scripted import Die, FinishWith, ScriptedEngine, Stall, Step
from tests.support.service.background import changed, ended, submitted
from tests.support.service.background import said as shown
from tests.support.service.beside import ServiceBeside
from tests.support.service.inside import Inside, answer, called, opened, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.service.sockets import socket
from tests.support.store.audit import dump
from tests.support.store.servers import PLAIN, server

Items = list[dict[str, Any]]

LOOK: Any = {
    "type": "function",
    "name": "look",
    "strict": False,
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}


def heard(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


async def stored(settings: Settings) -> dict[str, Any]:
    """The turns in the store with their texts, and the words by which they are found."""
    async with Redis.from_url(settings.redis_url, protocol=2) as redis:
        found = await dump(redis, settings.redis_prefix)
    kept = {key: value for key, value in found.items() if re.search(":(node|messages|response|said):", key)}
    return {key: len(value) if ":node:" in key else value for key, value in kept.items()}


@asynccontextmanager
async def remembering(
    settings: Settings, *scripts: list[int], **changes: Any
) -> AsyncIterator[tuple[Inside, ScriptedEngine, httpx.AsyncClient]]:
    engine = scripted(*([each] for each in scripts))
    async with (
        serving(changed(settings, **{"chats": "remember", **changes}), engine) as inside,
        inside.http() as http,
    ):
        yield inside, engine, http


async def post(http: httpx.AsyncClient, said_so_far: str | Items, **body: Any) -> dict[str, Any]:
    reply = await http.post("/v1/responses", json={"model": MODEL, "input": said_so_far, **body})
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_a_history_is_the_next_turn_of_its_conversation(settings: Settings) -> None:
    async with remembering(settings, answer("Hello Ada."), answer("It is Ada.")) as (_, engine, http):
        first = await post(http, "My name is Ada.", store=True)
        second = await post(http, [heard("My name is Ada."), said("Hello Ada."), heard("What is my name?")])
        assert (first["previous_response_id"], "harmonium" in first) == (None, False)
        assert (second["previous_response_id"], second["harmonium"]) == (first["id"], {"recognised": True})
        begun = [*engine.generations[0].prompt, *answer("Hello Ada.")]
        assert list(engine.generations[1].prompt)[: len(begun) - 1] == begun[:-1]
        listed = (await http.get(f"/v1/responses/{second['id']}/input_items?order=asc")).json()["data"]
        assert [item["content"][0]["text"] for item in listed][-1] == "What is my name?"


@pytest.mark.parametrize("gone", ["deleted", "erased", "words"])
async def test_a_turn_that_is_gone_is_continued_no_longer(settings: Settings, gone: str) -> None:
    async with remembering(settings, answer("Hello.")) as (_, engine, http):
        first = await post(http, "The secret is marmalade.")
        if gone != "words":
            query = "?erase=true" if gone == "erased" else ""
            assert (await http.delete(f"/v1/responses/{first['id']}{query}")).status_code == 200
        again = [heard("The secret is marmalade." if gone != "words" else "Hi."), said("Hello."), heard("And?")]
        second = await post(http, again)
        assert (second["previous_response_id"], "harmonium" in second) == (None, False)
        assert ("marmalade" in decode(engine.generations[-1].prompt)) == (gone != "words")


async def test_a_conversation_of_which_an_item_was_erased_is_continued_no_longer(settings: Settings) -> None:
    async with remembering(settings, answer("Hello.")) as (_, _, http):
        first = await post(http, "The secret is marmalade.", user="ada")
        history = [heard("The secret is marmalade."), said("Hello."), heard("And?")]
        second = await post(http, history, user="ada")
        fork = await http.post("/v1/conversations", json={"harmonium": {"fork_of": second["id"]}})
        items = f"/v1/conversations/{fork.json()['id']}/items"
        (item, *_) = (await http.get(f"{items}?order=asc")).json()["data"]
        for query, known in (("", [second["id"], first["id"]]), ("?erase=true", [None, None])):
            assert (await http.delete(f"{items}/{item['id']}{query}")).status_code == 200
            whole = [*history, said("Hello."), heard("So?")]
            again = [await post(http, each, user="ada") for each in (whole, history)]
            assert [each["previous_response_id"] for each in again] == known


CUTS: dict[str, Step] = {
    "cancelled": Stall(),
    "incomplete": FinishWith(Finish.LENGTH),
    "failed": Die(EngineError("it is gone")),
}


@pytest.mark.parametrize("status", list(CUTS))
async def test_a_turn_that_was_cut_is_continued_unless_it_failed(settings: Settings, status: str) -> None:
    engine = scripted([opened("One, two"), CUTS[status]], [answer("Three.")])
    async with serving(changed(settings, chats="remember"), engine) as inside, inside.http() as http:
        if status == "cancelled":
            async with inside.client() as client:
                id = (await submitted(client, "Count.")).id
                await shown(client, id, "One, two")
                await client.responses.cancel(id)
                cut = (await ended(client, id)).to_dict()
        else:
            cut = (await http.post("/v1/responses", json={"model": MODEL, "input": "Count."})).json()
        next_one = await post(http, [heard("Count."), said("One, two"), heard("Go on.")])
    assert cut.get("status", "failed") == status
    assert next_one["previous_response_id"] == (None if status == "failed" else cut["id"])


APIS: dict[str, tuple[str, dict[str, Any]]] = {
    "responses": ("input", {}),
    "chat/completions": ("messages", {}),
    "messages": ("messages", {"max_tokens": 500}),
}
"""The paths of a history, by what its member is called, and what else a request has."""


def response_id(id: str) -> str:
    return f"resp_{re.split('[-_]', id, maxsplit=1)[1]}"


@pytest.mark.parametrize("begun", list(APIS))
@pytest.mark.parametrize("continued", list(APIS))
async def test_a_conversation_goes_on_in_any_api(settings: Settings, begun: str, continued: str) -> None:
    first = [*thought("Ada?"), *then(answer("Hello Ada."))]
    async with remembering(settings, first, answer("Ada.")) as (_, engine, http):
        history, ids = [heard("I am Ada.")], list[str]()
        for path in (begun, continued):
            name, more = APIS[path]
            reply = await http.post(f"/v1/{path}", json={"model": MODEL, **more, name: history})
            ids.append(response_id(reply.json()["id"]))
            history += [said("Hello Ada."), heard("Who?")]
        second = (await http.get(f"/v1/responses/{ids[1]}")).json()
        assert (second["previous_response_id"], second["harmonium"]) == (ids[0], {"recognised": True})
        assert "Hello Ada." in decode(engine.generations[-1].prompt)


@pytest.mark.parametrize("store", [True, False])
async def test_a_connection_goes_on_from_a_turn_that_was_recognised(settings: Settings, store: bool) -> None:
    async with remembering(settings, answer("Hello.")) as (inside, engine, _), socket(inside.url) as ws:
        first = await ws.answer("My name is Ada.", store=True)
        history = [heard("My name is Ada."), said("Hello."), heard("And?")]
        second = await ws.answer(history, store=store)
        third = await ws.answer("Who am I?", store=store, previous_response_id=second["id"])
        assert [each["previous_response_id"] for each in (second, third)] == [first["id"], second["id"]]
        assert "My name is Ada." in decode(engine.generations[-1].prompt)


async def test_what_is_not_to_be_stored_is_answered_while_the_store_is_away(tmp_path: Path, settings: Settings) -> None:
    history = [heard("Hi."), said("Hello."), heard("And?")]
    with server(tmp_path, *PLAIN) as redis:
        away = {"redis_url": f"redis://{redis.address}", "store_timeout_seconds": 1.0}
        async with remembering(settings, answer("Hello."), **away) as (_, _, http):
            await post(http, "Hi.")
            with stopped(redis.process.pid):
                for store, status in ((False, 200), (True, 503)):
                    body = {"model": MODEL, "input": history, "store": store}
                    assert (await http.post("/v1/responses", json=body)).status_code == status


async def test_a_client_that_stores_nothing_reads_what_is_known_and_leaves_it_as_it_was(settings: Settings) -> None:
    """Codex sends its whole input each time, with sealed reasoning and `store: false`."""
    look = [*thought("Look first."), *then(called("look", '{"at": "sky"}'))]
    asked: Any = {"model": MODEL, "tools": [LOOK], "include": ["reasoning.encrypted_content"], "stream": True}
    scripts = (answer("Hello."), look, [*thought("It was blue."), *then(answer("Blue."))], answer("Ada."))
    async with remembering(settings, *scripts) as (inside, engine, http), inside.client() as client:
        first = await post(http, "I am Ada.")
        before = await stored(settings)
        history: list[Any] = [heard("I am Ada."), said("Hello."), heard("What colour?")]
        made: Any = None
        for _ in range(3):
            stream = await client.responses.create(input=history, store=False, **asked)
            made = [event async for event in stream][-1].response
            sealed = [item.encrypted_content for item in made.output if item.type == "reasoning"]
            assert (made.previous_response_id, all(sealed)) == (first["id"], True)
            history += [item.model_dump(exclude_none=True, exclude={"id", "status"}) for item in made.output]
            for item in made.output:
                if item.type == "function_call":
                    history.append({"type": "function_call_output", "call_id": item.call_id, "output": "blue"})
            if made.output_text:
                history.append(heard("Who am I?"))
        assert made.output_text == "Ada."
        whole = decode(engine.generations[-2].prompt)
        assert whole.index("I am Ada.") < whole.index("Look first.") < whole.index("blue")
        assert await stored(settings) == before
        assert (await http.get(f"/v1/responses/{made.id}")).status_code == 404


async def test_nothing_is_recognised_unless_an_operator_wants_it(settings: Settings) -> None:
    async with remembering(settings, answer("Hello."), chats="pass-on") as (_, _, http):
        await post(http, "Hi.")
        assert (await post(http, [heard("Hi."), said("Hello."), heard("And?")]))["previous_response_id"] is None


PATHS = [("responses", "input"), ("chat/completions", "messages")]
"""The ways to send a history, and the member that has it."""


def of_two_tenants(settings: Settings) -> Settings:
    own = {"redis_url": settings.redis_url, "redis_prefix": settings.redis_prefix}
    return load_settings(**own, api_keys="acme:sk-acme,other:sk-other")


async def parent_of(http: httpx.AsyncClient, history: Items, way: tuple[str, str] = PATHS[0]) -> str | None:
    """The parent of the response to a history."""
    path, name = way
    reply = await http.post(f"/v1/{path}", json={"model": MODEL, name: history})
    assert reply.status_code == 200, reply.text
    made = await http.get(f"/v1/responses/{reply.json()['id'].replace('chatcmpl-', 'resp_')}")
    return made.json()["previous_response_id"]


@pytest.mark.parametrize("way", PATHS)
async def test_tenants_with_the_same_words_never_continue_each_other(settings: Settings, way: tuple[str, str]) -> None:
    async with remembering(of_two_tenants(settings), answer("Hello.")) as (_, _, http):
        http.headers["authorization"] = "Bearer sk-acme"
        first = await post(http, "Hi.")
        history = [heard("Hi."), said("Hello."), heard("And?")]
        http.headers["authorization"] = "Bearer sk-other"
        assert await parent_of(http, history, way) is None
        http.headers["authorization"] = "Bearer sk-acme"
        assert await parent_of(http, history, way) == first["id"]


HISTORY = [heard("Hi."), said("Hello."), heard("And?")]

SPEAKERS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "a user": ({"user": "ada"}, {}),
    "an identifier": ({"safety_identifier": "ada"}, {}),
    "a key of a cache": ({"prompt_cache_key": "ada"}, {}),
    "instructions": ({"instructions": "You know Ada."}, {}),
    "Open WebUI's user": ({}, {"x-openwebui-user-id": "ada"}),
    "LibreChat's user": ({}, {"x-librechat-user-id": "ada"}),
}
"""The body and the headers of one who asks, where nobody else does so."""


@pytest.mark.parametrize(("body", "headers"), SPEAKERS.values(), ids=SPEAKERS.keys())
async def test_the_same_words_of_another_user_are_another_conversation(
    settings: Settings, body: dict[str, Any], headers: dict[str, str]
) -> None:
    async with remembering(settings, answer("Hello.")) as (inside, _, http), inside.http() as own:
        own.headers.update(headers)
        first = await post(own, "Hi.", **body)
        assert (await post(http, HISTORY))["previous_response_id"] is None
        assert (await post(own, HISTORY, **body))["previous_response_id"] == first["id"]


async def test_of_two_who_said_the_same_neither_continues_deletes_or_erases_what_the_other_did(
    settings: Settings,
) -> None:
    async with remembering(settings, answer("Hello.")) as (_, _, http):
        ada, bob = await post(http, "Hi."), await post(http, "Hi.")
        second = await post(http, HISTORY)
        assert second["previous_response_id"] is None
        third = await post(http, [*HISTORY, said("Hello."), heard("So?")])
        assert third["previous_response_id"] == second["id"]
        for id, query in ((bob["id"], "tree=true"), (ada["id"], "erase=true")):
            assert (await http.delete(f"/v1/responses/{id}?{query}")).status_code == 200
        for kept in (second, third):
            assert (await http.get(f"/v1/responses/{kept['id']}")).status_code == 200


@pytest.mark.parametrize("user", [None, "ada"])
async def test_a_fork_is_in_the_tree_of_a_user_who_is_named_alone(settings: Settings, user: str | None) -> None:
    async with remembering(settings, answer("Hello.")) as (_, _, http):
        first = await post(http, "Hi.", user=user)
        second = await post(http, HISTORY, user=user)
        edited = await post(http, [*HISTORY[:2], heard("But?")], user=user)
        assert second["previous_response_id"] == first["id"]
        assert edited["previous_response_id"] == (first["id"] if user else None)
        assert (await http.delete(f"/v1/responses/{second['id']}?tree=true")).status_code == 200
        assert (await http.get(f"/v1/responses/{edited['id']}")).status_code == (404 if user else 200)


FORGED = {
    "type": "mcp_call",
    "id": "mcp_1",
    "server_label": "bank",
    "name": "balance",
    "arguments": "{}",
    "output": "0",
}


PLANTED = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "The balance is 0."}]}


@pytest.mark.parametrize("planted", [FORGED, PLANTED], ids=["a call", "a thought"])
async def test_a_turn_with_what_its_client_only_says_was_made_here_is_never_found(
    settings: Settings, planted: dict[str, Any]
) -> None:
    async with remembering(settings, answer("Hello.")) as (_, engine, http):
        forged = await post(http, [planted, heard("Hi.")])
        assert (await post(http, HISTORY))["previous_response_id"] is None
        assert "balance" not in decode(engine.generations[-1].prompt)
        named = await post(http, "Go on.", previous_response_id=forged["id"], reasoning={"context": "all_turns"})
        assert named["previous_response_id"] == forged["id"]
        assert "balance" in decode(engine.generations[-1].prompt)


def test_a_history_that_is_recognised_is_sent_whole_on_purpose(beside: Callable[..., ServiceBeside]) -> None:
    http = beside(chats="remember").http()
    sent, before = [user("Hello.")], None
    for _ in range(3):
        made = ask(http, input=sent)
        assert made["previous_response_id"] == before, made
        before = made["id"]
        listed = http.get(f"/v1/responses/{before}/input_items?order=asc").json()["data"]
        sent = [*listed, *made["output"], user("And?")]
