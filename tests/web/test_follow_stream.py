"""A response that is followed, as server-sent events: all of them and `[DONE]`, or an end that says there is more."""

import asyncio
import json
import logging

import pytest
from starlette.types import Message

from service.api.events import Event
from service.errors import ApiError
from service.metrics.counters import make_metrics
from service.pacing import Pacing
from service.responses.output.machine import Ending
from service.settings.settings import load_settings
from service.web.admission.slots import Admission
from service.web.event_stream import EventStream
from service.web.exchange import Admitted, Exchange
from service.web.http_protocol import BREAK_OFF
from service.web.sse import KEEP_ALIVE
from store.errors import StoreUnavailable
from tests.support.responses import samples
from tests.support.service.followed import TENANT, World, entry_of, events_of, following
from tests.support.waiting import until

DONE = b"data: [DONE]\n\n"


def whole() -> list[Event]:
    tokens = samples.harmony("<|channel|>final<|message|>One, two, three, four, five, six.<|return|>")
    return samples.run(samples.machine(), [[token] for token in tokens], Ending.STOP)


class Client:
    """One client at the other end of ASGI: what it is sent, its going away, and that it was cut off."""

    def __init__(
        self, world: World, after: int = -1, *, obfuscate: bool = False, keepalive_seconds: float = 60
    ) -> None:
        metrics = make_metrics()
        self.exchange = Exchange({"type": "http", "path": "/v1/responses", "headers": []}, metrics, "GET", TENANT)
        self.admission = Admission(metrics, requests=1, followers=1, bodies=1)
        self.following = following(world, after)
        self.obfuscate = obfuscate
        self.bodies: list[bytes] = []
        self.started = self.ended = self.late = self.cut = False
        self.leave = asyncio.Event()
        self.settings = load_settings(keepalive_seconds=keepalive_seconds)

    async def follow(self) -> bytes:
        scope = {"extensions": {BREAK_OFF: {"now": self._cut}}}
        with self.admission.slot(TENANT) as slot:
            slot.take_follower()
            admitted = Admitted(self.exchange, slot, await Pacing().begin(TENANT))
            stream = EventStream(self.following, admitted, self.settings, obfuscate=self.obfuscate)
            await stream(scope, self._receive, self._send)
        return b"".join(self.bodies)

    def _cut(self) -> None:
        self.cut = True
        self.leave.set()

    async def _receive(self) -> Message:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
            assert (b"content-type", b"text/event-stream; charset=utf-8") in message["headers"]
            self.started = True
        else:
            assert self.started
            self.late = self.late or self.ended
            self.bodies.append(message["body"])
            self.ended = not message["more_body"]


async def test_events_that_wait_together_go_out_together() -> None:
    world, said = World(), whole()
    world.write(said[:2])
    client = Client(world)
    following = asyncio.create_task(client.follow())
    await until(lambda: json_numbers(client) == [0, 1])
    world.write(said[2:5])
    await until(lambda: json_numbers(client) == [0, 1, 2, 3, 4])
    world.write(said[5:])
    await following
    assert [body.count(b"event: ") for body in client.bodies] == [2, 3, len(said) - 5, 0]


def json_numbers(client: Client) -> list[int]:
    """The sequence numbers that a client was sent."""
    lines = b"".join(client.bodies).split(b"\n")
    return [json.loads(line[6:])["sequence_number"] for line in lines if line.startswith(b"data: {")]


async def test_a_quiet_stream_is_kept_alive() -> None:
    world = World()
    world.write(events_of(3, ended=False))
    client = Client(world, keepalive_seconds=0.01)
    following = asyncio.create_task(client.follow())
    await until(lambda: client.bodies.count(KEEP_ALIVE) > 2)
    world.write(events_of(4)[3:])
    await following
    await nobody_at_work()
    await asyncio.sleep(0.03)
    assert client.bodies[-2].endswith(DONE)
    assert client.bodies[-1] == b""
    assert not client.late


async def test_a_client_that_goes_away_is_followed_no_more() -> None:
    world = World()
    world.write(events_of(3, ended=False))
    client = Client(world)
    following = asyncio.create_task(client.follow())
    await until(lambda: client.bodies)
    client.leave.set()
    body = await following
    assert DONE not in body
    assert not world.listening
    assert client.exchange.facts == {"client": "gone"}


async def test_a_stream_that_is_cut_off_is_followed_no_more() -> None:
    world = World()
    world.write(events_of(3, ended=False))
    client = Client(world)
    following = asyncio.create_task(client.follow())
    await until(lambda: client.bodies)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert not world.listening
    await nobody_at_work()


async def nobody_at_work() -> None:
    """Wait until no task is left but the test's."""
    await until(lambda: len(asyncio.all_tasks()) == 1)


async def test_a_client_that_goes_away_at_once_leaves_nothing() -> None:
    world = World()
    world.write(events_of(3, ended=False))
    client = Client(world)
    client.leave.set()
    assert DONE not in await client.follow()
    assert not world.listening
    await nobody_at_work()


@pytest.mark.parametrize("how", ["deleted", "away"])
async def test_a_stream_that_cannot_go_on_is_cut_before_its_end_and_the_log_says_why(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.write(events_of(3, ended=False))
    client = Client(world)

    def fail() -> None:
        if client.bodies and how == "deleted":
            world.entries = None
        elif client.bodies:
            world.messages = refused

    async def refused(seconds: float) -> list[bytes] | None:
        raise StoreUnavailable("nobody listens any more")

    world.turn = fail
    with caplog.at_level(logging.WARNING):
        body = await client.follow()
    assert DONE not in body
    assert (client.ended, client.cut) == (False, True)
    assert "client" not in client.exchange.facts
    assert json_numbers(client) == [0, 1, 2]
    assert client.exchange.facts["outcome"] == "broken off"
    assert "a stream was broken off" in caplog.text


async def test_a_response_that_ended_before_what_its_client_has_is_cut_and_never_done() -> None:
    world = World()
    world.write(events_of(20, ended=False))
    client = Client(world)
    following = asyncio.create_task(client.follow())
    await until(lambda: client.bodies)
    world.entries = [entry_of(events_of(10))]
    assert DONE not in await following
    assert (client.ended, client.cut) == (False, True)


async def test_whoever_follows_leaves_its_slot_among_the_requests_to_others() -> None:
    world = World()
    client = Client(world)
    world.write(events_of(3, ended=False))
    following = asyncio.create_task(client.follow())
    await until(lambda: client.bodies)
    with (
        await client.admission.slot_in_line(TENANT) as slot,
        pytest.raises(ApiError, match="streams of background responses already"),
    ):
        slot.take_follower()
    client.leave.set()
    await following
    assert await client.admission.wait_until_empty(0)
    with client.admission.slot(TENANT) as slot:
        slot.take_follower()


async def test_events_that_went_just_now_are_a_400_and_no_stream() -> None:
    world = World()
    world.entries = None
    client = Client(world)
    with pytest.raises(ApiError) as refusal:
        await client.follow()
    assert (refusal.value.status, refusal.value.param) == (400, "stream")
    assert not client.started


async def test_a_store_that_is_away_is_no_stream() -> None:
    world = World()
    world.away = 1
    client = Client(world)
    with pytest.raises(StoreUnavailable):
        await client.follow()
    assert not client.started
    assert not world.listening
