"""Steering a background response: what is said to it at any replica ends it, and another one goes on with that."""

import json
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseSteerAcceptedEvent

from service.process import Settings, load_settings
from store.jobs.jobs import MAX_STEER_BYTES, MAX_STEERS
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.background import changed, ended, opened_stream, said, streamed, submitted
from tests.support.service.inside import Inside, answer, called, opened, scripted, serving, thought
from tests.support.service.seen import ask
from tests.support.service.steered import Answers, Paused

Json = dict[str, Any]


async def steer(inside: Inside, id: str, words: Any = "Be brief.", key: str = "", **body: Any) -> httpx.Response:
    headers = {"idempotency-key": key} if key else {}
    async with inside.http() as http:
        return await http.post(f"/v1/responses/{id}/steer", json={"input": words, **body}, headers=headers)


async def accepted(inside: Inside, id: str, words: Any = "Be brief.", **others: Any) -> str:
    answer = await steer(inside, id, words, **others)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told["type"] == "response.steer.accepted"
    assert told["steer"].keys() == {"id", "previous_response_id"}
    assert told["steer"]["previous_response_id"] == id
    return told["steer"]["id"]


async def refused(inside: Inside, id: str, *args: Any, **body: Any) -> tuple[int, str, str]:
    """How a steer was refused: the status, the code and the param."""
    answer = await steer(inside, id, *args, **body)
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


async def successor_of(client: AsyncOpenAI, id: str) -> str:
    """What goes on from a response, once that has ended."""
    return (await ended(client, id)).to_dict()["harmonium"]["succeeded_by"]  # type: ignore[index,return-value]


async def given_back(client: AsyncOpenAI, id: str) -> list[tuple[str, str, Any]]:
    """What was said to a response and comes back: each one's id, the code and what was said."""
    shown: Json = (await ended(client, id)).to_dict()["harmonium"]  # type: ignore[assignment]
    assert shown.keys() == {"failed_steers"}
    return [(each["steer"]["id"], each["error"]["code"], each["steer"]["input"]) for each in shown["failed_steers"]]


# --- what it comes to ---


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_answer_is_cut_and_another_response_goes_on_from_it(settings: Settings, elsewhere: bool) -> None:
    paused, answers = Paused(opened("One, two")), Answers()
    async with (
        serving(settings, scripted(paused, answers)) as working,
        serving(changed(settings, embedded_worker=False), scripted([])) as other,
        working.client() as client,
        (other if elsewhere else working).client() as asking,
        opened_stream(client, instructions="Be kind.", metadata={"a": "b"}) as (id, stream),
    ):
        await paused.reached.wait()
        body = {"input": "Be brief."}
        told = await asking.post(f"/responses/{id}/steer", cast_to=ResponseSteerAcceptedEvent, body=body)
        assert told.steer.previous_response_id == id
        last = [event async for event in stream][-1]
        successor = last.response.to_dict()["harmonium"]["succeeded_by"]
        target = check_stream(await streamed(other, id))
        made = await ended(client, successor)
        followed = check_stream(await streamed(other, successor))
        listed = await client.responses.input_items.list(successor, order="asc")
    assert (target["status"], target["incomplete_details"]) == ("incomplete", {"reason": "steered"})
    assert (target["output"][-1]["content"][0]["text"], target["output"][-1]["status"]) == ("One, two", "incomplete")
    assert followed == made.to_dict()
    assert (made.output_text, made.previous_response_id, made.background) == ("As you wish.", id, True)
    assert (made.instructions, made.metadata, made.store) == ("Be kind.", {"a": "b"}, True)  # type: ignore[attr-defined]
    assert "One, two<|end|><|start|>user<|message|>Be brief.<|end|>" in answers.text
    assert [item.role for item in listed.data] == ["user", "assistant", "user"]  # type: ignore[union-attr]


# --- what comes back ---


async def test_a_cancel_gives_back_what_was_said_and_is_no_successor(settings: Settings) -> None:
    before = thought("Let me think")[:-1]
    async with serving(settings, scripted(Paused(before))) as inside, inside.client() as client:
        async with opened_stream(client) as (id, stream):
            await said(client, id, "think")
            said_ids = [await accepted(inside, id, each) for each in ("One.", "Two.")]
            await client.responses.cancel(id)
            told: list[Any] = [event async for event in stream]
        back = await given_back(client, id)
    assert back == [(said_ids[0], "response_not_active", "One."), (said_ids[1], "response_not_active", "Two.")]
    failed = [event.to_dict() for event in told if event.type == "response.steer.failed"]
    assert [(each["steer"]["id"], each["code"], each["steer"]["input"]) for each in failed] == back
    assert told[-1].response.status == "cancelled"


async def test_behind_a_call_it_comes_back_as_the_caller_owes_its_output(settings: Settings) -> None:
    call = called("lookup", "{}")
    async with serving(settings, scripted(paused := Paused(call[:-1], call[-1:]))) as inside, inside.client() as client:
        id = (await submitted(client, tools=[{"type": "function", "name": "lookup"}])).id
        await paused.reached.wait()
        await accepted(inside, id)
        paused.on.set()
        shown: Json = (await ended(client, id)).to_dict()["harmonium"]  # type: ignore[assignment]
        (error,) = (each["error"] for each in shown["failed_steers"])
        assert error["code"] == "successor_creation_failed"
        assert "with the outputs of its calls" in error["message"]


# --- what is refused ---


async def test_what_can_t_be_steered_says_why(settings: Settings) -> None:
    async with (
        serving(
            changed(settings, embedded_worker=False, background_without_store=True), scripted([answer("Hi.")])
        ) as inside,
        inside.client() as client,
    ):
        in_one_piece = await ask(client, input="hi")
        assert await refused(inside, in_one_piece.id) == (400, "response_already_completed", "response_id")
        conversation = await client.conversations.create()
        managing: Any = [{"type": "compaction", "compact_threshold": 1000}]
        for options in ({"conversation": conversation.id}, {"context_management": managing}, {"store": False}):
            made = await submitted(client, **options)
            assert await refused(inside, made.id) == (400, "steering_not_supported", "response_id")
        cancelled = await submitted(client)
        await client.responses.cancel(cancelled.id)
        assert await refused(inside, cancelled.id) == (400, "response_not_active", "response_id")
        unknown = cancelled.id[:-4] + "0000"
        for id in (unknown, "resp_1", "x"):
            assert await refused(inside, id) == (404, "response_not_found", "response_id")
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(unknown)


@pytest.mark.parametrize(
    "body",
    [
        b'{"input": ""}',
        b"{}",
        b'{"input": "x", "model": "m"}',
        b'{"input": [{"role": "system", "content": "x"}]}',
        b'{"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}',
        b'{"input": [{"role": "user", "content": [{"type": "input_image", "image_url": 3}]}]}',
        b"[]",
        json.dumps({"input": [{"role": "user", "content": "x"}] * 65}).encode(),
    ],
)
async def test_what_is_no_steer_is_refused_and_says_what_is_wrong(settings: Settings, body: bytes) -> None:
    async with serving(changed(settings, embedded_worker=False), scripted([])) as inside, inside.client() as client:
        id = (await submitted(client)).id
        async with inside.http() as http:
            headers = {"content-type": "application/json"}
            answer = await http.post(f"/v1/responses/{id}/steer", content=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input"), answer.text
        found = await client.responses.cancel(id)
        assert "harmonium" not in found.to_dict()


async def test_no_more_is_accepted_than_there_is_room_for(settings: Settings) -> None:
    async with serving(changed(settings, embedded_worker=False), scripted([])) as inside, inside.client() as client:
        id = (await submitted(client)).id
        for number in range(MAX_STEERS):
            await accepted(inside, id, f"{number}")
        assert await refused(inside, id) == (429, "too_many_pending_steers", "input")
        other = (await submitted(client)).id
        await accepted(inside, other, "x" * (MAX_STEER_BYTES // 2))
        assert await refused(inside, other, "x" * (MAX_STEER_BYTES // 2)) == (429, "too_many_pending_steers", "input")
        assert await refused(inside, other, "x" * MAX_STEER_BYTES) == (400, "steer_too_large", "input")
        assert len(await given_back_of_a_cancelled(client, id)) == MAX_STEERS


async def given_back_of_a_cancelled(client: AsyncOpenAI, id: str) -> list[tuple[str, str, Any]]:
    """What comes back of a response that is cancelled."""
    await client.responses.cancel(id)
    return await given_back(client, id)


async def test_the_same_under_the_same_key_is_said_once_also_when_it_has_had_its_effect(settings: Settings) -> None:
    paused, answers = Paused(opened("One")), Answers()
    async with serving(settings, scripted(paused, answers)) as inside, inside.client() as client:
        id = (await submitted(client)).id
        await paused.reached.wait()
        one = await accepted(inside, id, key="a")
        successor = await successor_of(client, id)
        await ended(client, successor)
        assert await accepted(inside, id, key="a") == one
        assert await refused(inside, id, "Other words.", "a") == (400, "response_not_active", "response_id")
        assert await refused(inside, id, key="b") == (400, "response_not_active", "response_id")
    assert answers.text.count("Be brief.") == 1


async def test_another_tenant_can_t_tell_that_it_is_there(settings: Settings) -> None:
    keyed = changed(settings, api_keys=load_settings(api_keys="a:key-of-a,b:key-of-b").api_keys, embedded_worker=False)
    async with serving(keyed, scripted([])) as inside, inside.client("key-of-a") as client:
        id = (await submitted(client)).id
        async with inside.http() as http:
            answer = await http.post(
                f"/v1/responses/{id}/steer", json={"input": "x"}, headers={"authorization": "Bearer key-of-b"}
            )
            unnamed = await http.post(f"/v1/responses/{id}/steer", json={"input": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "response_not_found")
    assert unnamed.status_code == 401
