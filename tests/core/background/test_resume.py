"""Background responses that are followed: from any event on, by anybody who may, on any replica, while and after.

Of streams that can't go on, can't begin, or are too many, nobody takes a part for the whole.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import APIConnectionError, InternalServerError

from service.engine.port import Generation
from service.process import Settings
from service.settings.core import parse_api_keys
from store.jobs.log import GONE
from tests.core.web.test_errors import UNKNOWN
from tests.support.engine.scripted import Stall, Step
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.background import (
    changed,
    ended,
    opened_stream,
    reached,
    retrieved,
    said,
    streamed,
    submitted,
)
from tests.support.service.inside import Inside, answer, opened, scripted, serving, then, thought
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL
from tests.support.service.seen import ask
from tests.support.service.streams import parsed, sent
from tests.support.store.counted import usage
from tests.support.waiting import until

WHOLE = [[token] for token in [*thought("Let me see."), *then(answer("One, two, three, four."))]]
FIRST = ["response.created", "response.queued", "response.in_progress", "response.output_item.added"]


async def posted(inside: Inside, **body: object) -> str:
    """The text of a background stream."""
    async with inside.http() as http:
        request = {"model": MODEL, "input": "hi", "background": True, "stream": True, **body}
        found = await http.post("/v1/responses", json=request)
    assert found.status_code == 200, found.text
    return found.text


async def test_a_stream_begins_with_its_creation_and_ends_with_what_is_retrieved(settings: Settings) -> None:
    async with serving(settings, scripted(WHOLE)) as inside:
        events = parsed(await posted(inside))
        id = events[0]["response"]["id"]
        kept = (await retrieved(inside, id)).json()
        again = await streamed(inside, id)
    assert [event["type"] for event in events[:4]] == FIRST
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"] == kept
    plain = [{name: value for name, value in event.items() if name != "obfuscation"} for event in events]
    assert [{name: value for name, value in event.items() if name != "obfuscation"} for event in again] == plain


async def test_the_sdk_s_helper_follows_and_goes_on(settings: Settings) -> None:
    async with serving(settings, scripted(WHOLE)) as inside, inside.client() as client:
        async with client.responses.stream(model=MODEL, input="hi", background=True) as stream:
            texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            final = await stream.get_final_response()
        async with client.responses.stream(response_id=final.id, starting_after=6) as stream:
            numbers = [event.sequence_number async for event in stream]
            again = await stream.get_final_response()
    assert "".join(texts) == final.output_text == again.output_text == "One, two, three, four."
    assert numbers == list(range(7, 7 + len(numbers)))


async def test_what_is_behind_an_event_is_streamed_again(settings: Settings) -> None:
    async with serving(settings, scripted(WHOLE)) as inside:
        id = parsed(await posted(inside))[0]["response"]["id"]
        events = await streamed(inside, id, include_obfuscation="false")
        last = events[-1]["sequence_number"]
        for after in (0, last // 2, last, 2**31 - 1):
            found = await streamed(inside, id, starting_after=after, include_obfuscation="false")
            assert found == events[after + 1 :], after


@pytest.mark.parametrize("background", [False, True])
async def test_only_what_was_streamed_in_the_background_is_streamed_again(settings: Settings, background: bool) -> None:
    async with serving(settings, scripted(WHOLE)) as inside, inside.client() as client:
        made = await ask(client, input="hi", background=background)
        for _ in range(2):  # while it may be under way, and when it has ended
            refused = await retrieved(inside, made.id, stream="true")
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stream")
            assert "background=true and stream=true" in refused.json()["error"]["message"]
            await ended(client, made.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(UNKNOWN, stream=True)


class Told:
    """A script that says a word whenever it is told to."""

    def __init__(self) -> None:
        self.words: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, generation: Generation) -> Iterator[Step]:
        """The steps of one generation; an empty word is its end."""
        yield opened("Said:")
        while True:
            more = asyncio.Event()
            waiting = asyncio.ensure_future(self.words.get())
            waiting.add_done_callback(lambda _, more=more: more.set())
            yield Stall(more)
            if not (word := waiting.result()):
                return
            yield answer(word)[3:-1]


async def test_followers_on_all_replicas_see_each_event_once_from_where_they_began(settings: Settings) -> None:
    told: Any = Told()
    async with (
        serving(settings, scripted(told)) as inside,
        serving(changed(settings, embedded_worker=False), scripted([])) as other,
        inside.client() as client,
        opened_stream(client) as (id, _),
    ):
        followers = [asyncio.create_task(streamed(each, id)) for each in (inside, other)]
        for number in range(20):
            told.words.put_nowait(f" {number}")
            await said(client, id, f" {number}")
            after = {"starting_after": number} if number % 2 else {}
            followers += [asyncio.create_task(streamed(each, id, **after)) for each in (inside, other)]
        told.words.put_nowait("")
        whole, *others = await asyncio.gather(*followers)
    assert check_stream(whole)["output"][0]["content"][0]["text"] == "Said:" + "".join(f" {n}" for n in range(20))
    numbers = [event["sequence_number"] for event in whole]
    for events in others:
        assert [event["sequence_number"] for event in events] == numbers[len(whole) - len(events) :]
        assert events[-1] == whole[-1]


async def test_once_its_events_are_gone_others_tell_the_same(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.background.tasks.SWEEP_SECONDS", 0.05)
    forgetful = changed(settings, stream_retention_seconds=0.3)
    async with serving(forgetful, scripted(WHOLE)) as inside, inside.client() as client:
        final = parsed(await posted(inside))[-1]["response"]
        told = await until(
            lambda: retrieved(inside, final["id"], stream="true"),
            wanted=lambda found: found.status_code == 200 and "response.queued" not in found.text,
        )
        created, *between, completed = sent(told.text)
        assert (created["type"], created["sequence_number"]) == ("response.created", 0)
        assert created["response"] == final | {
            "status": "in_progress",
            "output": [],
            "usage": None,
            "completed_at": None,
        }
        assert [each["delta"] for each in between if "delta" in each] == [
            "Let me see.",
            "One, two, three, four.",
        ]
        assert completed == {"type": "response.completed", "response": final, "sequence_number": len(between) + 1}

        (resumed,) = sent((await retrieved(inside, final["id"], stream="true", starting_after=7)).text)
        assert resumed == completed | {"sequence_number": 8}
        async with client.responses.stream(response_id=final["id"]) as stream:
            told_sdk = await stream.get_final_response()
            assert (told_sdk.id, told_sdk.status) == (final["id"], "completed")
            assert told_sdk.output_text == "One, two, three, four."
        assert (await retrieved(inside, final["id"])).json() == final
        assert (await ask(client, input="And?", previous_response_id=final["id"])).output


REQUESTS = {
    "retrieve": ("GET", "/v1/responses/{}", None),
    "stream": ("GET", "/v1/responses/{}?stream=true", None),
    "cancel": ("POST", "/v1/responses/{}/cancel", None),
    "delete": ("DELETE", "/v1/responses/{}", None),
    "delete the tree": ("DELETE", "/v1/responses/{}?tree=true", None),
    "input items": ("GET", "/v1/responses/{}/input_items", None),
    "continue": ("POST", "/v1/responses", {"model": MODEL, "input": "hi", "background": True}),
}


async def asked_as_globex(inside: Inside, what: str, id: str) -> httpx.Response:
    """The answer to a request of globex about a response."""
    method, path, body = REQUESTS[what]
    headers = {"authorization": f"Bearer {GLOBEX_KEY}"}
    async with inside.http() as http:
        return await http.request(
            method, path.format(id), json=body and {**body, "previous_response_id": id}, headers=headers
        )


@pytest.mark.parametrize(
    ("worker", "script", "status"),
    [(False, [], "queued"), (True, [opened("A secret"), Stall()], "in_progress"), (True, WHOLE, "completed")],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_another_tenant_has_in_the_background_is_as_unknown_as_what_never_was(
    settings: Settings, worker: bool, script: list[Any], status: str
) -> None:
    two = changed(settings, api_keys=parse_api_keys(f"acme:{ACME_KEY},globex:{GLOBEX_KEY}"), embedded_worker=worker)
    async with serving(two, scripted(script)) as inside, inside.client(ACME_KEY) as acme:
        id = (await submitted(acme)).id
        await reached(acme, id, status)
        for what in REQUESTS:
            foreign, unknown = [await asked_as_globex(inside, what, each) for each in (id, UNKNOWN)]
            assert foreign.status_code == unknown.status_code == (400 if what == "continue" else 404)
            assert foreign.content.replace(id.encode(), UNKNOWN.encode()) == unknown.content
        assert (await acme.responses.retrieve(id)).status == status


TENANT = "default"


async def delete_log(inside: Inside, id: str) -> None:
    """The store's work for space."""
    keys = inside.store.keyspace.turn(TENANT, id)
    async with inside.store.server.operation() as operation:
        await operation.command("DEL", keys.key("log"))
        await operation.command("SPUBLISH", keys.key("events"), GONE, at=keys.key("log"))


async def test_a_stream_that_is_broken_off_is_an_error_to_its_client_and_no_fault_of_ours(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serving(settings, scripted([opened("Half"), Stall()])) as inside,
        inside.client() as client,
        opened_stream(client) as (id, stream),
    ):
        await said(client, id, "Half")
        await delete_log(inside, id)
        with pytest.raises(APIConnectionError):
            async for _ in stream:
                pass
    assert "a stream was broken off" in caplog.text
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_followers_keep_nobody_else_out_and_are_bounded_themselves(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.app.MAX_FOLLOWERS", 1)
    tight = changed(settings, max_concurrent_requests=1)
    async with serving(tight, scripted([opened("Half"), Stall()])) as inside, inside.client() as client:
        async with opened_stream(client) as (id, stream):
            await said(client, id, "Half")
            with pytest.raises(InternalServerError, match="streams of background responses already") as refused:
                await ask(client, input="hi", background=True, stream=True)
            assert refused.value.status_code == 503
            with pytest.raises(InternalServerError, match="streams of background responses already"):
                await client.responses.retrieve(id, stream=True)
            assert (await usage(inside.store)).responses == 1
            assert (await client.responses.cancel(id)).status == "cancelled"
            assert [event.type async for event in stream][-1] == "response.failed"
        again: Any = await client.responses.retrieve(id, stream=True)
        assert check_stream([event.to_dict() async for event in again])["status"] == "cancelled"
