"""Compacting a conversation: the user's words and a sealed summary come back, and a new one begins with them."""

from typing import Any

import httpx

from service.engine.port import Finish, ModelCard
from service.harmony import tokens
from service.responses.prompt.compaction import INSTRUCTION
from service.settings.settings import Settings
from tests.support.engine.scripted import FinishWith, ScriptedEngine
from tests.support.service.inside import answer, opened, scripted, serving, thought
from tests.support.service.process import MODEL, ServiceProcess

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


async def test_what_outgrew_the_context_is_compacted_where_truncation_is_allowed(settings: Settings) -> None:
    engine = ScriptedEngine(ModelCard(MODEL, 0, 2000), [answer(SUMMARY)])
    turns = [
        {"role": role, "content": f"{role} {number} " + "word " * 150}
        for number in range(8)
        for role in ("user", "assistant")
    ]
    async with serving(settings, engine) as inside, inside.http() as http:
        refused = await http.post("/v1/responses/compact", json={"model": MODEL, "input": turns})
        window = (await compacted(http, input=turns, truncation="auto"))["output"]
        again = await http.post(
            "/v1/responses", json={"model": MODEL, "input": [*window, {"role": "user", "content": "?"}]}
        )
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert [words(item)[:6] for item in window[:-1]] == ["user 5", "user 6", "user 7"]
    assert again.status_code == 200


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


async def test_a_file_without_a_name_has_none_in_either_dialect(settings: Settings) -> None:
    unnamed = {"type": "input_file", "file_data": "data:text/plain;base64,aGVsbG8="}
    sent = [{"role": "user", "content": [unnamed]}, {"role": "assistant", "content": "Hello."}]
    async with serving(settings, scripted([answer(SUMMARY)])) as inside, inside.http() as http:
        given = [await compacted(http, path, input=sent) for path in ("/v1", "/open-responses/v1")]
    assert [each["output"][0]["content"] for each in given] == [[unnamed], [unnamed]]
