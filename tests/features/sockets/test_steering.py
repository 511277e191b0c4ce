"""Steering: what a client says to a response while it is being made ends it, and the next one goes on with it."""

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from websockets.exceptions import ConnectionClosedError
from websockets.frames import CloseCode

from service.engine.port import EngineUnavailable, Generation
from service.features.sockets.connection import MAX_IN_FLIGHT
from service.features.sockets.protocol import SocketProtocol
from service.features.sockets.steering import MAX_STEERS
from service.harmony import tokens
from service.process import Settings
from service.responses.attachments import Attachments
from tests.support.engine.scripted import Die, Stall, Step
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.inside import answer, called, opened, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.service.sockets import TERMINAL, Socket, socket
from tests.support.service.steered import Answers, Paused, shown
from tests.support.waiting import until

Json = dict[str, Any]
LOOKUP = {"type": "function", "name": "lookup", "parameters": {"type": "object", "properties": {}}, "strict": False}


async def created(ws: Socket) -> str:
    return (await ws.next())["response"]["id"]


async def steer(ws: Socket, id: str, said: Any = "Be brief.", **fields: Any) -> None:
    await ws.send("response.steer", previous_response_id=id, input=said, **fields)


async def rest(ws: Socket, kind: str) -> list[Json]:
    """The frames up to the first one of a type, or of a beginning of types."""
    frames = [await ws.next()]
    while not frames[-1]["type"].startswith(kind):
        frames.append(await ws.next())
    return frames


def numbers(frames: list[Json]) -> list[int]:
    return [frame["sequence_number"] for frame in frames]


def checked(frames: list[Json]) -> Json:
    """The response of a whole stream, of which the events about steers are no part but for their numbers."""
    assert numbers(frames) == list(range(len(frames)))
    own = [frame for frame in frames if not frame["type"].startswith("response.steer.")]
    return check_stream([{**frame, "sequence_number": place} for place, frame in enumerate(own)])


async def stored(inside: Any, id: str) -> Json:
    async with inside.http() as http:
        return (await http.get(f"/v1/responses/{id}")).json()


def http_waits(http: httpx.AsyncClient) -> Callable[[], Awaitable[bool]]:
    """Whether a request waits for a place."""

    async def waits() -> bool:
        return "harmonium_requests_waiting 1.0" in (await http.get("/metrics")).text

    return waits


# --- what it comes to ---


@pytest.mark.parametrize("store", [True, False])
async def test_an_answer_is_cut_and_the_next_response_goes_on_from_it(settings: Settings, store: bool) -> None:
    paused, answers = Paused(opened("One, two")), Answers()
    async with serving(settings, scripted(paused, answers)) as inside, socket(inside.url) as ws:
        asked = [{"type": "additional_tools", "tools": [LOOKUP]}, {"role": "user", "content": "Count."}]
        await ws.ask(asked, store=store, instructions="Be kind.", metadata={"a": "b"}, stream_id="a")
        frames = [await ws.next()]
        id = frames[0]["response"]["id"]
        await paused.reached.wait()
        await steer(ws, id)
        frames += await ws.rest()
        target = checked(frames)
        successor = checked(await ws.rest())
        if store:
            assert (await stored(inside, id))["incomplete_details"] == {"reason": "steered"}
    accepted = next(frame for frame in frames if frame["type"] == "response.steer.accepted")
    assert accepted["steer"].keys() == {"id", "previous_response_id"}
    assert accepted["steer"]["previous_response_id"] == id
    assert accepted["stream_id"] == "a"
    assert (target["status"], target["incomplete_details"]) == ("incomplete", {"reason": "steered"})
    assert target["output"][-1]["content"][0]["text"] == "One, two"
    assert target["output"][-1]["status"] == "incomplete"
    assert (successor["previous_response_id"], successor["status"]) == (id, "completed")
    assert (successor["instructions"], successor["metadata"], successor["store"]) == ("Be kind.", {"a": "b"}, store)
    assert "One, two<|end|><|start|>user<|message|>Be brief.<|end|>" in answers.text


# --- calls ---


async def test_what_ends_in_calls_waits_for_their_outputs(settings: Settings) -> None:
    call = called("lookup", "{}")
    paused, answers = Paused(call[:-1], [*call[-1:], *then(answer("Unheard."))]), Answers()
    async with serving(settings, scripted(paused, answers)) as inside, socket(inside.url) as ws:
        await ws.ask("Look it up.", tools=[LOOKUP])
        frames = [await ws.next()]
        id = frames[0]["response"]["id"]
        await paused.reached.wait()
        await steer(ws, id)
        await steer(ws, id, "And quickly.")
        frames += [await ws.next() for _ in range(1)]
        while [frame["type"] for frame in frames].count("response.steer.accepted") < 2:
            frames.append(await ws.next())
        paused.on.set()
        frames += await ws.rest()
        pending = [await ws.next(), await ws.next()]
        target = checked(frames)
        required = pending[0]["required_input"]
        (item,) = target["output"]
        assert required == [{"type": "function_call_output", "call_id": item["call_id"], "name": "lookup"}]
        await steer(ws, id, "Too late.")
        late = await ws.next()
        await ws.ask([{**required[0], "output": "42"}], previous_response_id=id)
        successor = checked(await ws.rest())
    assert target["status"] == "completed"
    assert [frame["type"] for frame in pending] == ["response.steer.pending"] * 2
    assert pending[0]["reason"] == "waiting_for_required_input"
    assert numbers(pending) == [len(frames), len(frames) + 1]
    assert late["error"]["code"] == "response_already_completed"
    assert (successor["previous_response_id"], successor["tools"]) == (id, [])
    assert answers.text.index("Be brief.") < answers.text.index("And quickly.") < answers.text.index("42")
    assert "Too late." not in answers.text


@pytest.mark.parametrize("continues", [True, False])
async def test_what_is_pending_comes_back_where_it_can_not_be_said(settings: Settings, continues: bool) -> None:
    call = called("lookup", "{}")
    paused, answers = Paused(call[:-1], call[-1:]), Answers()
    async with serving(settings, scripted(paused, answers)) as inside, socket(inside.url) as ws:
        await ws.ask("Look it up.", tools=[LOOKUP])
        id = await created(ws)
        await paused.reached.wait()
        await steer(ws, id)
        paused.on.set()
        pending = (await rest(ws, "response.steer.pending"))[-1]
        if continues:
            wrong = {"type": "function_call_output", "call_id": "call_none", "output": "x"}
            await ws.ask([wrong], previous_response_id=id)
            assert (await ws.next())["error"]["param"] == "input"
            code = "successor_creation_failed"
        else:
            await ws.ask("Something else.")
            code = "response_not_active"
        back = (await rest(ws, "response.steer.failed"))[-1]
    assert (back["error"]["code"], back["steer"]["id"]) == (code, pending["steer"]["id"])
    assert back["steer"]["input"] == "Be brief."
    assert "Be brief." not in "".join(map(shown, answers.prompts))


# --- what can't be ---


async def refused(ws: Socket, id: str, said: Any = "Be brief.", **fields: Any) -> Json:
    """The event that gives a steer back at once."""
    await steer(ws, id, said, **fields)
    back = (await rest(ws, "response.steer.failed"))[-1]
    assert back["error"]["type"] == "invalid_request_error"
    assert back["steer"]["previous_response_id"] == id
    assert "id" not in back["steer"]
    assert back["steer"]["input"] == said
    return back


BAD = {
    "an empty text": "",
    "another role": [{"role": "developer", "content": "x"}],
    "an output": [{"type": "function_call_output", "call_id": "c", "output": "x"}],
    "an id": [{"role": "user", "content": "x", "id": "msg_1"}],
    "65 messages": [{"role": "user", "content": "x"}] * 65,
}


async def test_bad_input_is_given_back_and_changes_nothing(settings: Settings) -> None:
    paused, answers = Paused(opened("One"), [tokens.RETURN]), Answers()
    async with serving(settings, scripted(paused, answers)) as inside, socket(inside.url) as ws:
        await ws.ask("Count.", stream_id="a")
        frames = [await ws.next()]
        id = frames[0]["response"]["id"]
        await paused.reached.wait()
        for name, said in BAD.items():
            back = await refused(ws, id, said)
            assert (name, back["error"]["code"], back["stream_id"]) == (name, "invalid_input", "a")
        back = await refused(ws, id, stream_id="a")
        assert "stream_id" in back["error"]["message"]
        paused.on.set()
        assert (await ws.rest())[-1]["response"]["status"] == "completed"


@pytest.mark.parametrize("managing", [True, False])
async def test_a_compaction_is_not_steered(settings: Settings, managing: bool) -> None:
    paused = Paused(opened("One"), [tokens.RETURN])
    words: list[Json] = [{"role": "user", "content": "Count."}]
    more = {"context_management": [{"type": "compaction", "compact_threshold": 1000}]} if managing else {}
    async with serving(settings, scripted(paused)) as inside, socket(inside.url) as ws:
        await ws.ask([*words, *([] if managing else [{"type": "compaction_trigger"}])], **more)
        id = await created(ws)
        await paused.reached.wait()
        assert (await refused(ws, id))["error"]["code"] == "steering_not_supported"
        paused.on.set()
        await ws.rest()


async def test_a_response_of_another_connection_is_not_found(settings: Settings) -> None:
    paused = Paused(opened("One"), [tokens.RETURN])
    async with serving(settings, scripted(paused)) as inside, socket(inside.url) as ws, socket(inside.url) as other:
        await ws.ask("Count.")
        id = await created(ws)
        await paused.reached.wait()
        for named in (id, "resp_" + "0" * 48, "x"):
            back = await refused(other, named)
            assert (back["error"]["code"], back["sequence_number"]) == ("response_not_found", 0)
        paused.on.set()
        await ws.rest()


async def test_too_many_are_given_back_and_the_others_are_said(settings: Settings) -> None:
    paused, answers = Paused(thought("Hm")[:-1], [tokens.END]), Answers()
    async with serving(settings, scripted(paused, answers)) as inside, socket(inside.url) as ws:
        await ws.ask("Why?")
        id = await created(ws)
        await paused.reached.wait()
        padded = {"type": "response.steer", "previous_response_id": id, "input": "Say much."}
        await ws.connection.send(json.dumps(padded) + " " * 600_000)
        await rest(ws, "response.steer.accepted")
        back = await refused(ws, id, "x" * 600_000)
        assert back["error"]["code"] == "too_many_pending_steers"
        for place in range(MAX_STEERS - 1):
            await steer(ws, id, f"Say {place}.")
            await rest(ws, "response.steer.accepted")
        assert (await refused(ws, id))["error"]["code"] == "too_many_pending_steers"
        paused.on.set()
        await ws.rest()
        await ws.rest()
    assert all(f"Say {place}." in answers.text for place in range(MAX_STEERS - 1))


async def test_what_was_accepted_comes_back_where_the_response_fails_or_is_cancelled(settings: Settings) -> None:
    def dies(generation: Generation) -> Iterator[Step]:
        yield thought("Hm")[:-1]
        reached.set()
        yield Stall(on)
        yield Die(EngineUnavailable("no"))

    reached, on = asyncio.Event(), asyncio.Event()
    silent = Paused(thought("Hm")[:-1])
    async with serving(settings, scripted(dies, silent, Answers())) as inside, socket(inside.url) as ws:
        for event, act, code in (
            (reached, on.set, "successor_creation_failed"),
            (silent.reached, None, "response_not_active"),
        ):
            await ws.ask("Why?")
            id = await created(ws)
            await event.wait()
            await steer(ws, id)
            accepted = (await rest(ws, "response.steer.accepted"))[-1]
            if act is not None:
                act()
            else:
                await ws.send("response.cancel")
            ending = (await ws.rest())[-1]
            back = await ws.next()
            assert (back["type"], back["error"]["code"]) == ("response.steer.failed", code)
            assert back["steer"] == {**accepted["steer"], "input": "Be brief."}
            assert back["sequence_number"] == ending["sequence_number"] + 1
        assert (await ws.answer("hi"))["status"] == "completed"


async def test_what_was_accepted_comes_back_where_the_next_response_finds_no_place(settings: Settings) -> None:
    settings = settings.model_copy(update={"max_concurrent_requests": 1, "admission_wait_seconds": 0.5})
    paused = Paused(opened("One, two"))
    engine = scripted(paused, [opened("On and on."), Stall()])
    async with serving(settings, engine) as inside, socket(inside.url) as ws, inside.http() as http:
        await ws.ask("Count.")
        id = await created(ws)
        await paused.reached.wait()
        other = asyncio.create_task(http.post("/v1/responses", json={"model": MODEL, "input": "x"}))
        await until(http_waits(http))
        await steer(ws, id)
        accepted = (await rest(ws, "response.steer.accepted"))[-1]
        await rest(ws, "response.incomplete")
        back = await ws.next()
        other.cancel()
    assert (back["type"], back["error"]["code"]) == ("response.steer.failed", "successor_creation_failed")
    assert back["steer"] == {**accepted["steer"], "input": "Be brief."}


async def test_a_frame_that_meets_a_bug_ends_the_connection_with_a_code(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    paused = Paused(opened("One, two"))
    async with serving(settings, engine := scripted(paused)) as inside, socket(inside.url) as ws:
        await ws.ask("Count.")
        id = await created(ws)
        await paused.reached.wait()
        monkeypatch.setattr(Attachments, "read_into", None)
        await steer(ws, id, [{"role": "user", "content": "Be brief."}])
        with pytest.raises(ConnectionClosedError) as closed:
            await rest(ws, "response.completed")
        await until(lambda: engine.running == 0)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == CloseCode.INTERNAL_ERROR
    assert "a WebSocket met a bug" in caplog.text


# --- real clients, a real pace ---


async def test_the_official_client_steers(settings: Settings) -> None:
    settings = settings.model_copy(update={"demo_tokens_per_second": 40})
    async with (
        serving(settings) as inside,
        AsyncOpenAI(base_url=f"{inside.url}/v1", api_key="none") as client,
        client.responses.connect() as connection,
    ):
        await connection.response.create(model=MODEL, input="Count to 200.")
        kinds: list[str] = []
        first = steered = ""
        async for event in connection:
            kinds.append(event.type)
            if event.type == "response.output_text.delta" and not steered:
                steered = "asked"
                await connection.response.steer(previous_response_id=first, input="Count to 2.")
            elif event.type == "response.created":
                if steered:
                    assert event.response.previous_response_id == first
                first = event.response.id
            elif event.type == "response.incomplete":
                assert event.response.incomplete_details is not None
                assert event.response.incomplete_details.reason == "steered"
            elif event.type == "response.completed":
                assert event.response.output_text == "1\n2"
                break
    assert kinds.count("response.steer.accepted") == 1
    assert kinds.index("response.steer.accepted") < kinds.index("response.incomplete")
    assert not set(TERMINAL) & set(kinds) - {"response.completed", "response.incomplete"}


async def test_a_connection_that_ends_forgets_what_waits_for_a_place_also_where_its_client_lags(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    call = called("lookup", "{}")
    paused, send_texts = Paused(call[:-1], call[-1:]), SocketProtocol.send_texts

    async def lag(wire: SocketProtocol, texts: Iterable[bytes] = ()) -> None:
        await asyncio.sleep(0.2)
        await send_texts(wire, texts)

    engine = scripted([answer("First.")], paused, [opened("On and on."), Stall()])
    async with serving(settings, engine) as inside, socket(inside.url) as ws:
        await ws.ask("Begin.", stream_id="lane-0")
        await ws.rest()
        await ws.ask("Look it up.", tools=[LOOKUP], stream_id="waits")
        id = await created(ws)
        await paused.reached.wait()
        await steer(ws, id)
        await rest(ws, "response.steer.accepted")
        paused.on.set()
        await rest(ws, "response.steer.pending")
        for lane in range(MAX_IN_FLIGHT):
            await ws.ask("Go on.", stream_id=f"lane-{lane}")
        await until(lambda: engine.running == MAX_IN_FLIGHT)
        await ws.ask("And this.", stream_id="waits")
        await asyncio.sleep(0.1)
        monkeypatch.setattr(SocketProtocol, "send_texts", lag)
        await ws.connection.close()
        await until(lambda: engine.running == 0)
        await asyncio.sleep(0.5)
        gc.collect()
    assert "IndexError" not in caplog.text
    assert len(engine.generations) == 2 + MAX_IN_FLIGHT
