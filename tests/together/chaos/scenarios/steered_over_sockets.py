"""An API that dies while a response is steered: the target is stored with its successor, or alone, or not at all.

Its client learns of no end that isn't stored, and goes on elsewhere from what is.
"""

import os
import signal
from typing import Any, NamedTuple

from websockets.exceptions import ConnectionClosed

from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import Scenario, Stage
from tests.support.chaos.mortals import dead
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

SLOW: dict[str, Any] = {"demo_tokens_per_second": 60, "embedded_worker": False}
SECONDS = 30.0


class Seen(NamedTuple):
    """The view of a client: the responses that were created, in order, and which of them had ended."""

    created: list[str]
    ended: list[str]


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


async def die(stage: Stage, step: str, soon: float = 0.0) -> None:
    settings = stage.settings(**SLOW)
    async with Aftermath(settings) as aftermath:
        pid, url = await stage.program.serve(settings, "" if step == ACCEPTED else step, after=soon)
        async with socket(url) as ws:
            seen = await steer_to_its_death(ws, pid, step)
        await until(lambda: dead(pid), SECONDS)
        await check(aftermath, seen, None if soon else STORED[step])
        async with serving(settings) as inside, socket(inside.url) as ws:
            for id in sorted(await aftermath.ids()):
                assert (await ws.answer("Count to 2.", previous_response_id=id))["status"] == "completed"


SCENARIO = Scenario(die, tuple(STORED), pushed="appended again", soon_turns=20)
