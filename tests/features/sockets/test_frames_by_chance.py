"""Thousands of frames made by chance, in pieces and in lanes: each is answered or refused, and nothing breaks."""

import asyncio
import json
import logging
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.process import Settings
from tests.support.fuzz.fuzzing import Json, Maker
from tests.support.lengths import lengths
from tests.support.oracles import open_responses
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.inside import serving
from tests.support.service.process import MODEL
from tests.support.service.sockets import Socket, socket

PATHS = ("/v1/responses", "/open-responses/v1/responses")
LANES = (None, None, "a", "b", "c", "a b", 5)
FRAMES_A_SOCKET = 100
"""So many go over one WebSocket, before it is closed, in the middle of what is under way."""

FENCE = "resp_fence"
"""What a frame names whose answer comes behind that of the frame before it."""

STATUSES = (400, 404, 413, 429)


class Fuzzed:
    """A service in a loop of its own, and one WebSocket after another."""

    def __init__(self, runner: asyncio.Runner, url: str) -> None:
        self._runner = runner
        self._url = url
        self._sent = 0
        self._opening: Any = None
        self._ws: Socket | None = None
        self._path = PATHS[0]
        self._ids: list[str] = []
        self.asked: object = None
        self.outcomes = {True: 0, False: 0}

    def try_one(self, maker: Maker) -> None:
        """Send a frame, and look at what comes of it."""
        self._runner.run(self._try(maker))

    async def _try(self, maker: Maker) -> None:
        if self._ws is None or self._sent % FRAMES_A_SOCKET == 0:
            await self.close()
            self._path = maker.one(*PATHS)
            self._opening = socket(self._url, self._path)
            self._ws = await self._opening.__aenter__()
        self._sent += 1
        frame = self._frame(maker)
        self.asked = frame
        if isinstance(frame, str) and maker.odds(4):
            cut = len(frame) // 2
            await self._ws.connection.send([frame[:cut], frame[cut:]])
        else:
            await self._ws.connection.send(frame)
        if isinstance(frame, str) and _told(frame):
            await self._check_silence(self._ws)
        else:
            self._check(await self._ws.rest(), frame)

    def _frame(self, maker: Maker) -> str | bytes:
        """A frame that is right, or nearly, or not at all."""
        if maker.odds(20):
            return maker.one(b"", b"{}", "", "[]", "null", '{"type":5}', maker.word(), json.dumps(maker.anything()))
        body: Any = maker.body()
        if not isinstance(body, dict):
            return json.dumps(body)
        body.pop("stream", None)
        kind = maker.one(*["response.create"] * 12, "response.cancel", "response.processed", "response.steer", None)
        lane = maker.one(*LANES)
        frame = {**body, "type": kind, "background": maker.one(None, None, False, True)}
        if lane is not None:
            frame["stream_id"] = lane
        if maker.odds(3):
            frame["store"] = maker.one(True, False, None)
        if maker.odds(4):
            frame["generate"] = maker.one(True, False, "no")
        if self._ids and maker.odds(3):
            frame["previous_response_id"] = maker.one(*self._ids[-4:])
        if kind == "response.steer" and maker.odds(2):
            said = maker.one(maker.word(), [], maker.anything(), [{"role": "user", "content": maker.word()}])
            frame = {"type": kind, "previous_response_id": maker.one(*self._ids[-4:], "resp_0", 5), "input": said}
        content = maker.content(frame)
        try:
            return content.decode()
        except UnicodeDecodeError:
            return content

    def _check(self, frames: list[Json], frame: str | bytes) -> None:
        last = frames[-1]
        self.outcomes[last["type"] != "error"] += 1
        if last["type"] == "error":
            assert len(frames) == 1, "an error behind events"
            assert last["status"] in STATUSES, last
            error = last["error"]
            assert error.keys() == {"type", "code", "message", "param", "headers"}
            assert error["type"] == "invalid_request_error"
            assert len(error["message"]) < 1200
            return
        if last["type"] == "response.steer.failed":
            assert len(frames) == 1, "a steer behind events"
            assert last["error"]["code"] in ("response_not_found", "response_already_completed", "response_not_active")
            return
        named = json.loads(frame).get("stream_id")
        assert {each.pop("stream_id", None) for each in frames} == {named}
        self._ids.append(last["response"]["id"])
        if len(frames) == 2:
            assert json.loads(frame)["generate"] is False
            assert last["response"]["output"] == []
        elif self._path == PATHS[0]:
            check_stream(frames)
        else:
            open_responses.check_stream(frames)

    async def _check_silence(self, ws: Socket) -> None:
        """Nothing answers what older clients tell, unless it can't be read. What answers another frame then is no
        answer to the next one.
        """
        await ws.send("response.cancel", response_id=FENCE)
        answers = [await ws.next()]
        if FENCE not in answers[0]["error"]["message"]:
            assert answers[0]["error"]["code"] == "invalid_json"
            answers.append(await ws.next())
        assert FENCE in answers[-1]["error"]["message"]

    async def close(self) -> None:
        """Close the WebSocket, with something under way."""
        if self._ws is not None:
            await self._ws.send(model=MODEL, input="Count to 1000.", store=False)
            await self._opening.__aexit__(None, None, None)
            self._ws = None


def _told(frame: str) -> bool:
    """Whether a frame only tells of what was read, as far as Python reads its JSON, which is further than the service
    does: a half of a surrogate pair, and what is no number.
    """
    try:
        sent = json.loads(frame)
    except ValueError:
        return False
    return isinstance(sent, dict) and sent.get("type") == "response.processed"


@pytest.fixture
def fuzzed(settings: Settings) -> Iterator[Fuzzed]:
    """The service over the demo engine, as fast as it can."""
    with asyncio.Runner() as runner:
        service = serving(settings)
        inside = runner.run(service.__aenter__())
        fuzzed = Fuzzed(runner, inside.url)
        yield fuzzed
        runner.run(fuzzed.close())
        runner.run(service.__aexit__(None, None, None))


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of tools that the client's accumulator sees echoed
@pytest.mark.parametrize("frames", lengths(300, 10_000, seconds=3600))
def test_whatever_is_sent_over_a_socket_gets_an_answer(
    fuzzed: Fuzzed, caplog: pytest.LogCaptureFixture, frames: int
) -> None:
    """Nothing may be refused in another way than as a refusal, or be logged as a mistake."""

    @settings(max_examples=frames, deadline=None, derandomize=True, database=None)
    @given(st.integers(0, 2**48))
    def one(seed: int) -> None:
        try:
            fuzzed.try_one(Maker(Random(seed)))
            assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
        except Exception as error:
            error.add_note(f"the last frame was {fuzzed.asked!r}")
            raise

    one()
    assert min(fuzzed.outcomes.values()) > frames // 20, "what is made is all served, or all refused"
