"""A WebSocket: the same events as over HTTP, one response after another, continued without the store."""

import asyncio
import json
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from service.engine.port import Generation
from service.features.sockets.protocol import SocketProtocol
from service.process import Settings
from tests.core.web.test_disconnect import Talk, stored
from tests.support.bad.frames import raw
from tests.support.engine.scripted import Stall
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.inside import Inside, answer, opened, scripted, serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL
from tests.support.service.sockets import Socket, socket
from tests.support.waiting import until

TWO = f"acme:{ACME_KEY},globex:{GLOBEX_KEY}"


def said(response: dict[str, Any]) -> str:
    return response["output"][-1]["content"][0]["text"]


async def test_a_response_has_the_events_of_a_stream_and_is_stored(settings: Settings) -> None:
    async with serving(settings) as inside, socket(inside.url) as ws, inside.client() as client:
        await ws.ask("Count to 3.")
        events = await ws.rest()
        assert check_stream(events)["status"] == "completed"
        stored = await client.responses.retrieve(events[-1]["response"]["id"])
    assert stored.output_text.startswith("1\n2\n3")
    assert not any("stream_id" in event for event in events)


async def test_a_continued_prompt_is_the_one_over_http_and_what_is_not_stored_is_of_its_connection_alone(
    settings: Settings,
) -> None:
    prompts: list[list[int]] = []

    def note(generation: Generation) -> list[list[int]]:
        prompts.append(list(generation.prompt))
        return [answer("Fine.")]

    async with serving(settings, scripted(note)) as inside, socket(inside.url) as ws, inside.client() as client:
        for store in (True, False):
            first = await ws.answer("One.", store=store)
            await ws.answer("Two.", store=store, previous_response_id=first["id"])
        one = await client.responses.create(model=MODEL, input="One.")
        await client.responses.create(model=MODEL, input="Two.", previous_response_id=one.id)
        assert prompts[1] == prompts[3] == prompts[5]
        first = await ws.answer("One.", store=False)
        async with socket(inside.url) as other:
            await other.ask("Two.", store=False, previous_response_id=first["id"])
            assert (await other.rest())[-1]["error"]["code"] == "previous_response_not_found"
        await ws.ask("Two.", previous_response_id=first["id"])
        assert (await ws.rest())[-1]["error"]["code"] == "invalid_store_transition"


async def test_a_continuation_that_fails_lets_its_parent_be_forgotten(settings: Settings) -> None:
    async with serving(settings) as inside, socket(inside.url) as ws:
        first = await ws.answer("Hello! My name is Ada.", store=False)
        wrong = {"type": "function_call_output", "call_id": "call_none", "output": "x"}
        for words, code in (([wrong], None), ("What is my name?", "previous_response_not_found")):
            await ws.ask(words, store=False, previous_response_id=first["id"])
            assert (await ws.rest())[-1]["error"]["code"] == code


async def test_nothing_is_answered_where_nothing_is_to_be_generated(settings: Settings) -> None:
    engine = scripted([answer("Fine.")])
    async with serving(settings, engine) as inside, socket(inside.url) as ws:
        for store in (True, False):
            await ws.ask("My name is Ada.", generate=False, store=store)
            created, completed = await ws.rest()
            assert (created["type"], completed["type"]) == ("response.created", "response.completed")
            assert (created["sequence_number"], completed["sequence_number"]) == (0, 1)
            assert completed["response"]["output"] == []
            assert completed["response"]["status"] == "completed"
            assert not engine.generations
            await ws.answer("And?", store=store, previous_response_id=completed["response"]["id"])
            assert len(engine.generations.pop().prompt) > completed["response"]["usage"]["input_tokens"]


async def test_lanes_run_side_by_side_and_a_lane_one_after_the_other(settings: Settings) -> None:
    silent = Talk()
    async with serving(settings, scripted(silent, [answer("Quick.")])) as inside, socket(inside.url) as ws:
        await ws.ask("Wait.", stream_id="a")
        await silent.silent.wait()
        await ws.ask("Next.", stream_id="a")
        await ws.ask("Quick.", stream_id="b")
        frames = [await ws.next()]
        while frames[-1]["type"] != "response.completed":
            frames.append(await ws.next())
        assert frames[-1]["stream_id"] == "b"
        assert {each["stream_id"] for each in frames} == {"a", "b"}
        await ws.send("response.cancel", stream_id="a")
        first, second = await ws.rest(), await ws.rest()
    assert first[-1]["response"]["status"] == "cancelled"
    assert {each["stream_id"] for each in [*first, *second]} == {"a"}
    assert second[-1]["type"] == "response.completed"


async def test_a_client_hears_that_a_silent_response_is_still_made_as_it_may_count_no_pings(settings: Settings) -> None:
    quick = settings.model_copy(update={"keepalive_seconds": 0.03})
    async with serving(quick, scripted(Talk())) as inside, socket(inside.url) as ws:
        await ws.ask("Wait.", stream_id="a")
        frames = [await ws.next()]
        while len(alive := [each for each in frames if each["type"] == "keepalive"]) < 3:
            frames.append(await ws.next())
        said = frames[-4]["sequence_number"]
        assert alive[-1] == {"type": "keepalive", "sequence_number": said, "stream_id": "a"}
        await ws.send("response.cancel", stream_id="a")
        last = (await ws.rest())[-1]
    numbers = {each["sequence_number"] for each in frames}
    assert numbers == set(range(said + 1)), "it takes no number"
    assert last["type"] == "response.failed"


async def test_sixteen_run_at_once_and_more_wait(settings: Settings) -> None:
    engine = scripted([opened("On and on."), Stall()])
    async with serving(settings, engine) as inside, socket(inside.url) as ws:
        for lane in range(20):
            await ws.ask("Go on.", stream_id=f"lane-{lane}")
        await until(lambda: engine.running == 16)
        await ws.send("response.cancel", stream_id="lane-19")
        frames = await ws.rest()
        assert (frames[-1]["status"], frames[-1]["error"]["code"]) == (404, "response_not_active")
        await ws.send("response.cancel", stream_id="lane-3")
        assert (await ws.rest())[-1]["stream_id"] == "lane-3"
        await until(lambda: engine.running == 16)
        begun = {each["stream_id"] for each in await ws.until("lane-16")}
        assert "lane-17" not in begun
    await until(lambda: engine.running == 0)


async def test_sixty_four_frames_may_wait_and_no_more(settings: Settings) -> None:
    silent = Talk()
    async with serving(settings, scripted(silent)) as inside, socket(inside.url) as ws:
        await ws.ask("Wait.")
        await silent.silent.wait()
        for _ in range(65):
            await ws.ask("Next.")
        refusal = (await ws.rest())[-1]
    assert (refusal["status"], refusal["error"]["code"]) == (429, "too_many_pending_frames")


async def test_a_cancel_stops_the_engine_and_what_was_said_is_kept(settings: Settings) -> None:
    silent = Talk()
    engine = scripted(silent, [answer("Fine.")])
    async with serving(settings, engine) as inside, socket(inside.url) as ws:
        await ws.ask("Wait.")
        id = (await ws.next())["response"]["id"]
        await silent.silent.wait()
        await ws.send("response.cancel", response_id=id)
        last = (await ws.rest())[-1]
        assert (last["type"], last["response"]["status"]) == ("response.failed", "cancelled")
        assert engine.running == 0
        assert (await stored(inside, id))["status"] == "cancelled"
        assert said(await ws.answer("Go on.", previous_response_id=id)) == "Fine."


async def test_a_client_that_goes_stops_the_engine_and_what_was_said_is_kept(settings: Settings) -> None:
    silent = Talk()
    engine = scripted(silent)
    async with serving(settings, engine) as inside:
        async with socket(inside.url) as ws:
            await ws.ask("Wait.")
            id = (await ws.next())["response"]["id"]
            await silent.silent.wait()
            ws.connection.transport.abort()
        await until(lambda: engine.running == 0)
        assert (await stored(inside, id))["status"] == "cancelled"


async def test_who_has_no_key_gets_a_plain_401(settings: Settings) -> None:
    keyed = Settings(**{**settings.model_dump(exclude_unset=True), "api_keys": TWO})
    async with serving(keyed) as inside:
        with pytest.raises(InvalidStatus) as refused:
            async with socket(inside.url):
                pass
        assert refused.value.response.status_code == 401
        assert json.loads(refused.value.response.body)["error"]["code"] == "invalid_api_key"
        assert refused.value.response.headers["x-request-id"].startswith("req_")
        async with (
            socket(inside.url, additional_headers={"authorization": f"Bearer {ACME_KEY}"}) as acme,
            socket(inside.url, additional_headers={"authorization": f"Bearer {GLOBEX_KEY}"}) as globex,
        ):
            first = await acme.answer("Hello! My name is Ada.")
            await globex.ask("What is my name?", previous_response_id=first["id"])
            assert (await globex.rest())[-1]["error"]["code"] == "previous_response_not_found"


async def test_one_too_many_is_a_503_with_a_time_to_retry(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.app.MAX_SOCKETS", 1)
    async with serving(settings) as inside:
        async with socket(inside.url):
            with pytest.raises(InvalidStatus) as refused:
                async with socket(inside.url):
                    pass
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["retry-after"] == "1"
        assert "1 WebSockets already" in refused.value.response.body.decode()
        async with socket(inside.url) as ws:
            assert said(await ws.answer("Count to 2.")) == "1\n2"


async def test_a_page_of_another_origin_opens_none_without_keys(settings: Settings) -> None:
    async with serving(settings) as inside:
        with pytest.raises(InvalidStatus) as refused:
            async with socket(inside.url, origin="http://evil.example"):
                pass
        assert refused.value.response.status_code == 403
        async with socket(inside.url, origin=inside.url):
            pass


async def test_its_time_is_up_between_responses_and_never_within_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.features.sockets.connection.OPEN_SECONDS", 1.0)
    settings = settings.model_copy(update={"demo_tokens_per_second": 20})
    async with serving(settings) as inside, socket(inside.url) as ws:
        answered = await ws.answer("Count to 20.")
        assert said(answered).endswith("20")
        error = await ws.next()
        assert (error["status"], error["error"]["code"]) == (400, "websocket_connection_limit_reached")
        assert await closed(ws) == 1001


@pytest.mark.parametrize("end", [raw(8, b"\x03\xe8"), raw(1, b"\xff"), raw(9, b"") * 601, b""])
async def test_who_reads_nothing_is_cut_off_also_where_it_is_little_and_behind_a_close(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    opened_ones: list[SocketProtocol] = []
    begin = SocketProtocol.begin
    monkeypatch.setattr(SocketProtocol, "begin", lambda self, *given: (opened_ones.append(self), begin(self, *given)))
    async with serving(settings.model_copy(update={"send_seconds": 0.05})) as inside, socket(inside.url) as ws:
        client = ws.connection.transport
        client.pause_reading()
        (protocol,) = opened_ones
        while not protocol.transport.get_write_buffer_size():
            protocol.transport.write(b"x" * 4096)
        client.write(end)
        await until(lambda: protocol.disconnected, 5)
        client.abort()


async def test_a_stop_lets_what_runs_end_and_closes_with_1012(settings: Settings) -> None:
    settings = settings.model_copy(update={"demo_tokens_per_second": 60})

    async def client(inside: Inside, asked: asyncio.Event) -> str:
        async with socket(inside.url) as ws:
            await ws.ask("Count to 10.")
            await ws.next()
            asked.set()
            last = (await ws.rest())[-1]
            assert await closed(ws) == 1012
        return said(last["response"])

    asked = asyncio.Event()
    async with serving(settings) as inside:
        talking = asyncio.create_task(client(inside, asked))
        await asked.wait()
    assert (await talking).endswith("10")


async def closed(ws: Socket) -> int:
    """The code of the close, which is next."""
    with pytest.raises(ConnectionClosed) as raised:
        await ws.next()
    assert raised.value.rcvd is not None
    return raised.value.rcvd.code


async def test_what_is_deleted_or_erased_is_not_said_again_though_it_is_remembered(settings: Settings) -> None:
    async with serving(settings) as inside, socket(inside.url) as ws, inside.client() as client:
        first = await ws.answer("Hello! My name is Ada.")
        second = await ws.answer("Count to 2.", previous_response_id=first["id"])
        await client.responses.delete(first["id"], extra_query={"erase": True})
        assert "Ada" not in said(await ws.answer("What is my name?", previous_response_id=second["id"]))
        await client.responses.delete(second["id"])
        await ws.ask("What is my name?", previous_response_id=second["id"])
        assert (await ws.rest())[-1]["error"]["code"] == "previous_response_not_found"


async def test_without_room_what_is_stored_is_read_again_and_what_is_not_is_gone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.features.sockets.connection.MEMORY_BYTES", 0)
    async with serving(settings) as inside, socket(inside.url) as ws:
        for store in (True, False):
            first = await ws.answer("Hello! My name is Ada.", store=store)
            await ws.ask("What is my name?", store=store, previous_response_id=first["id"])
            last = (await ws.rest())[-1]
            assert "Ada" in said(last["response"]) if store else last["error"]["code"] == "previous_response_not_found"


async def test_an_idle_one_is_closed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.features.sockets.connection.IDLE_SECONDS", 0.2)
    async with serving(settings) as inside, socket(inside.url) as ws:
        assert await closed(ws) == 1001
