"""Compacting a conversation, when asked to and by itself: the user's words and a sealed summary come back, and what
follows begins with them.
"""

from typing import Any

import httpx
import pytest

from service.engine.port import Finish
from service.harmony import tokens
from service.process import Settings
from service.responses.prompt.compaction import INSTRUCTION
from tests.support.engine.scripted import FinishWith, ScriptedEngine
from tests.support.service.background import ended, streamed
from tests.support.service.inside import answer, opened, scripted, serving, then, thought
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.service.streams import parsed

Json = dict[str, Any]
CONVERSATION: list[Json] = [
    {"role": "user", "content": "My boat is called Vesper."},
    {"role": "assistant", "content": "A fine name for a heron of the sea."},
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "input_text", "text": "Where does she lie?"}]},
]
SUMMARY = "The boat was praised."


async def compacted(http: httpx.AsyncClient, path: str = "/v1", **body: object) -> Json:
    given = await http.post(f"{path}/responses/compact", json={"model": MODEL, **body})
    assert given.status_code == 200, given.text
    return given.json()


def words(item: Json) -> str:
    return "".join(part["text"] for part in item["content"])


async def test_the_user_s_words_come_back_with_one_compaction_item(settings: Settings) -> None:
    engine = scripted([[*thought("Hm."), tokens.START, tokens.ASSISTANT, *answer(SUMMARY)]])
    async with serving(settings, engine) as inside, inside.http() as http:
        given = await compacted(http, input=CONVERSATION)
    assert given.keys() == {"id", "object", "created_at", "output", "usage"}
    assert given["object"] == "response.compaction"
    *said, compaction = given["output"]
    assert [words(item) for item in said] == ["My boat is called Vesper.", "Where does she lie?"]
    assert {(item["type"], item["role"], item["status"]) for item in said} == {("message", "user", "completed")}
    assert compaction["type"] == "compaction"
    assert SUMMARY not in compaction["encrypted_content"]
    assert given["usage"]["output_tokens"] > 0


async def test_a_new_conversation_begins_with_the_summary_instead_of_what_was_said(settings: Settings) -> None:
    engine = scripted([answer(SUMMARY)], [answer("In the harbour.")])
    async with serving(settings, engine) as inside, inside.http() as http:
        window = (await compacted(http, input=CONVERSATION))["output"]
        body = {"model": MODEL, "input": [*window, {"role": "user", "content": "Say it again."}]}
        assert (await http.post("/v1/responses", json=body)).status_code == 200
    prompt = tokens.decode(engine.generations[-1].prompt)
    assert "heron" not in prompt
    assert INSTRUCTION not in prompt
    assert prompt.count("My boat is called Vesper.") == 1
    assert prompt.index("Vesper") < prompt.index(SUMMARY) < prompt.index("Say it again.")


async def test_a_stored_conversation_is_compacted_by_its_last_response(settings: Settings) -> None:
    engine = scripted([answer("A fine heron.")], [answer(SUMMARY)])
    async with serving(settings, engine) as inside, inside.http() as http:
        first = (await http.post("/v1/responses", json={"model": MODEL, "input": "My boat is called Vesper."})).json()
        given = await compacted(http, previous_response_id=first["id"])
        more = await compacted(http, previous_response_id=first["id"], input="And she is green.")
        assert (await http.get(f"/v1/responses/{given['id']}")).status_code == 404, "it is stored"
        assert (await http.delete(f"/v1/responses/{first['id']}?tree=true")).status_code == 200, "it is still pinned"
    assert [words(item) for item in given["output"][:-1]] == ["My boat is called Vesper."]
    assert [words(item) for item in more["output"][:-1]] == ["My boat is called Vesper.", "And she is green."]


async def test_a_trigger_compacts_and_the_conversation_goes_on_from_there(settings: Settings) -> None:
    engine = scripted([answer("A fine heron.")], [answer(SUMMARY)], [answer("In the harbour.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        first = await client.responses.create(model=MODEL, input="My boat is called Vesper.")
        trigger: Any = [{"type": "compaction_trigger"}]
        second = await client.responses.create(model=MODEL, input=trigger, previous_response_id=first.id)
        third = await client.responses.create(model=MODEL, input="Where is she?", previous_response_id=second.id)
    assert [item.type for item in second.output] == ["compaction"]
    assert third.output_text == "In the harbour."
    prompt = tokens.decode(engine.generations[-1].prompt)
    assert "heron" not in prompt
    assert prompt.index("Vesper") < prompt.index(SUMMARY) < prompt.index("Where is she?")


async def test_half_a_summary_is_none(settings: Settings) -> None:
    engine = scripted([opened("The boat"), FinishWith(Finish.LENGTH)])
    async with serving(settings, engine) as inside, inside.http() as http:
        given = await http.post("/v1/responses/compact", json={"model": MODEL, "input": CONVERSATION})
    assert given.status_code == 500
    assert given.json()["error"]["code"] == "compaction_failed"
    assert given.headers["x-should-retry"] == "true"


def test_the_sdk_compacts_and_goes_on(service: ServiceProcess) -> None:
    client = service.client()
    given = client.responses.compact(model=MODEL, input="My boat is called Vesper.")
    assert [item.type for item in given.output] == ["message", "compaction"]
    window: Any = [item.to_dict(warnings=False) for item in given.output]
    asked: Any = [*window, {"role": "user", "content": "What is my boat called?"}]
    assert "Vesper" in client.responses.create(model=MODEL, input=asked).output_text


AT_ONCE: Any = [{"type": "compaction", "compact_threshold": 1}]
FIRST: Json = {"role": "user", "content": "My boat is called Vesper."}
SECOND: Json = {"role": "user", "content": "Where does she lie?"}
HARBOUR = "In the harbour."


def heron_engine(*more: list[Any]) -> ScriptedEngine:
    """An engine that answers, summarizes, and answers behind that."""
    summary = [*thought("Hm."), *then(answer(SUMMARY))]
    return scripted([answer("A fine heron.")], [summary], [[*thought("So."), *then(answer(HARBOUR))]], *more)


async def created(http: httpx.AsyncClient, **body: object) -> Json:
    given = await http.post("/v1/responses", json={"model": MODEL, **body})
    assert given.status_code == 200, given.text
    return given.json()


def kinds_of(response: Json) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.parametrize("background", [False, True])
async def test_a_stored_conversation_is_compacted_and_goes_on_from_there(settings: Settings, background: bool) -> None:
    played = heron_engine([answer("Still there.")])
    async with serving(settings, played) as inside, inside.http() as http, inside.client() as client:
        first = await created(http, input=[FIRST])
        asked = {"input": [SECOND], "previous_response_id": first["id"], "context_management": AT_ONCE}
        second = await created(http, **asked, background=background)
        second = (await ended(client, second["id"])).to_dict()
        await created(http, input="And now?", previous_response_id=second["id"])
    assert kinds_of(second) == ["compaction", "reasoning", "message"]
    assert second["status"] == "completed"
    asking, answering, going_on = (list(each.prompt) for each in played.generations[1:])
    assert tokens.decode(asking).index("heron") < tokens.decode(asking).index(INSTRUCTION)
    text = tokens.decode(answering)
    assert "heron" not in text
    assert text.index("Vesper") < text.index(SUMMARY) < text.index("Where does she lie?")
    assert going_on[: len(answering)] == answering
    usage: Any = second["usage"]
    assert usage["input_tokens"] == len(asking) + len(answering)


async def test_the_words_of_an_erased_item_go_with_the_compaction_that_kept_them(settings: Settings) -> None:
    played = heron_engine([answer("Still there.")], [answer("Where?")])
    async with serving(settings, played) as inside, inside.http() as http:
        conversation = (await http.post("/v1/conversations", json={})).json()["id"]
        await created(http, input=[FIRST], conversation=conversation)
        await created(http, input=[SECOND], conversation=conversation, context_management=AT_ONCE)
        path = f"/v1/conversations/{conversation}/items"
        items: list[Json] = (await http.get(path)).json()["data"]
        for kinds in ("user", "compaction"):
            for item in items:
                if kinds in (item.get("role"), item["type"]):
                    assert (await http.delete(f"{path}/{item['id']}", params={"erase": True})).status_code == 200
            await created(http, input="And now?", conversation=conversation)
    kept, gone = (tokens.decode(each.prompt) for each in played.generations[-2:])
    assert all(word in kept for word in ("Vesper", "Where does she lie?", SUMMARY))
    assert not any(word in gone for word in ("Vesper", "Where does she lie?", SUMMARY))


async def test_who_keeps_the_history_may_drop_what_stands_before_the_item(settings: Settings) -> None:
    played = heron_engine([answer("Still there.")])
    history: list[Json] = [FIRST]
    pruned: list[Json] = []
    async with serving(settings, played) as inside, inside.http() as http:
        for asked in (SECOND, {"role": "user", "content": "And now?"}):
            history += [*(await created(http, input=history, store=False))["output"], asked]
            if asked is SECOND:
                made = await created(http, input=history, store=False, context_management=AT_ONCE)
                history += made["output"]
                pruned = history[[item.get("type") for item in history].index("compaction") :]
        again: Json = {"role": "user", "content": "And then?"}
        await created(http, input=[*history, again], store=False)
        await created(http, input=[*pruned, *history[len(history) - 2 :], again], store=False)
    whole, short = (list(each.prompt) for each in played.generations[-2:])
    assert whole == short
    assert "Where does she lie?" in tokens.decode(short)


async def test_its_events_are_those_of_an_item_and_an_answer(settings: Settings) -> None:
    async with serving(settings, heron_engine()) as inside, inside.http() as http:
        first = await created(http, input=[FIRST])
        body = {"model": MODEL, "input": [SECOND], "previous_response_id": first["id"], "context_management": AT_ONCE}
        plain = parsed((await http.post("/v1/responses", json={**body, "stream": True})).text)
    async with serving(settings, heron_engine()) as inside, inside.http() as http:
        first = await created(http, input=[FIRST])
        body["previous_response_id"] = first["id"]
        queued = await http.post("/v1/responses", json={**body, "stream": True, "background": True})
        begun = parsed(queued.text)
        followed = await streamed(inside, begun[0]["response"]["id"])
    for events in (plain, begun, followed):
        items = [each["item"] for each in events if each["type"] == "response.output_item.done"]
        assert [item["type"] for item in items] == ["compaction", "reasoning", "message"]
        assert items == events[-1]["response"]["output"]
        assert SUMMARY not in str(events)
        added = next(each["item"] for each in events if each["type"] == "response.output_item.added")
        assert added == {"type": "compaction", "id": items[0]["id"], "encrypted_content": ""}
