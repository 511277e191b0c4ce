"""An API that dies while a response is steered: the target is stored with its successor, or alone, or not at all.

Its client learns of no end that isn't stored, and goes on elsewhere from what is.
"""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from websockets.exceptions import ConnectionClosed

from service.settings.settings import Settings, load_settings
from store.embedded import EmbeddedServer
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.mortals import Mortals, dead, mortals
from tests.support.chaos.storm import STEADY
from tests.support.ports import free_port
from tests.support.service.inside import serving
from tests.support.service.sockets import TERMINAL, Socket, socket
from tests.support.waiting import until

ACCEPTED = "accepted"
"""The step that only its client sees, which kills it then."""

STORED: dict[str, int | None] = {
    ACCEPTED: None,
    "appending": 0,
    "appended": 1,
    "appending again": 1,
    "appended again": 2,
}
"""By the step at which the API dies, how many responses are stored, where that is certain: target and successor."""

TOKENS_PER_SECOND = 60
SOON_SECONDS = 0.05
SECONDS = 30.0

pytestmark = pytest.mark.timeout(120)


class Seen(NamedTuple):
    """What a client saw: the responses that were created, in order, and which of them had ended."""

    created: list[str]
    ended: list[str]


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    """Makes settings over one store, with an empty part of it for each prefix."""
    with EmbeddedServer(tmp_path / "store") as server:

        def make(prefix: str) -> Settings:
            common = STEADY | {"demo_tokens_per_second": TOKENS_PER_SECOND, "worker": False}
            return load_settings(redis_url=server.url, key_prefix=prefix, **common)

        yield make


async def listens(port: int) -> bool:
    """Whether somebody does. Raises OSError if not."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    return True


async def steer_to_its_death(ws: Socket, pid: int, step: str) -> Seen:
    """Ask for a response, and steer it once it speaks."""
    seen, steered = Seen([], []), False
    await ws.ask("Count to 500.")
    try:
        while True:
            frame = await ws.next()
            if frame["type"] == "response.created":
                seen.created.append(frame["response"]["id"])
            elif frame["type"] in TERMINAL:
                seen.ended.append(frame["response"]["id"])
            elif frame["type"] == "response.output_text.delta" and not steered:
                steered = True
                await ws.send("response.steer", previous_response_id=seen.created[0], input="Count to 3.")
            elif frame["type"] == "response.steer.accepted" and step == ACCEPTED:
                os.kill(pid, signal.SIGKILL)
    except ConnectionClosed:
        return seen


async def check(aftermath: Aftermath, seen: Seen, stored: int | None) -> None:
    """The store has the first responses that were created, whole, or so many of them exactly."""
    there = await aftermath.ids()
    first = seen.created[: len(there)]
    assert there == {*first}
    assert stored is None or len(there) == stored
    assert {*seen.ended} <= there
    responses = [await aftermath.response(id) for id in first]
    if responses:
        target = responses[0]
        assert target.status == "incomplete"
        assert target.incomplete_details is not None
        assert target.incomplete_details.reason == "steered"
    if len(responses) > 1:
        assert (responses[1].status, responses[1].previous_response_id) == ("completed", first[0])
    assert await aftermath.left_over(timed=False) == []
    assert await aftermath.complaints() == []
    await aftermath.check_usage()


async def die(mortals: Mortals, settings: Settings, step: str, soon: float = 0.0) -> None:
    aftermath, port = Aftermath(settings), free_port()
    try:
        pid = await mortals.begin(settings, "" if step == ACCEPTED else step, "serve", str(port), after=soon)
        await until(lambda: listens(port), SECONDS, "it doesn't serve", passing=OSError)
        async with socket(f"http://127.0.0.1:{port}") as ws:
            seen = await steer_to_its_death(ws, pid, step)
        await until(lambda: dead(pid), SECONDS)
        await check(aftermath, seen, None if soon else STORED[step])
        async with serving(settings) as inside, socket(inside.url) as ws:
            for id in sorted(await aftermath.ids()):
                assert (await ws.answer("Count to 2.", previous_response_id=id))["status"] == "completed"
    except BaseException as error:
        error.add_note(step)
        raise
    finally:
        await aftermath.close()


async def test_an_api_that_dies_at_any_step_of_a_steer_leaves_whole_responses(settings: Any) -> None:
    async with mortals() as program, asyncio.TaskGroup() as group:
        for number, step in enumerate(STORED):
            group.create_task(die(program, settings(f"step-{number}"), step))


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_apis_that_die_soon_after_any_step_of_a_steer_leave_whole_responses(settings: Any) -> None:
    async with mortals() as program:
        for turn in range(20):
            async with asyncio.TaskGroup() as group:
                for number, step in enumerate(STORED):
                    group.create_task(die(program, settings(f"turn-{turn}-{number}"), step, SOON_SECONDS))
