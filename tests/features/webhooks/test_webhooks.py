"""Webhooks: every end is told, as the official client reads it, until the receiver has accepted it or time is up."""

import asyncio
import logging
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from service.features.webhooks.deliver import DeliveryTiming
from store.errors import StoreUnavailable
from store.jobs.outbox import Webhook
from tests.support import ROOT
from tests.support.store.servers import server
from tests.support.waiting import until
from tests.support.webhooks.desk import QUICK, SECRET, TENANT, Desk, unwrapped
from tests.support.webhooks.inbox import inbox, silence, status

KILLED_SECONDS = 3.0
NEVER = 3600.0


async def test_what_is_not_accepted_is_sent_again_as_the_same_event(desk: Desk) -> None:
    id = await desk.end()
    async with inbox() as box:
        box.answers = [status(500), status(404), status(204)]
        async with desk.delivering(box.url) as delivering:
            await delivering.settled(3)
    assert {unwrapped(letter).data.id for letter in box.letters} == {id}
    assert len({letter.headers["webhook-id"] for letter in box.letters}) == 1
    assert (delivering.delivered, delivering.failed, delivering.given_up) == (1, 2, 0)
    assert await desk.waiting() == 0


async def test_a_receiver_that_never_wants_to_hear_of_it_again_does_not(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    id = await desk.end()
    async with inbox() as box:
        box.answers = [status(410)]
        async with desk.delivering(f"{box.url}?token=hidden") as delivering:
            await until(lambda: delivering.given_up)
    assert (len(box.letters), await desk.waiting()) == (1, 0)
    (fields,) = [each.__dict__["fields"] for each in caplog.records if each.getMessage() == "webhook given up"]
    assert (fields["response_id"], fields["tenant"], fields["reason"]) == (id, TENANT, "it answered 410")
    assert "hidden" not in str([each.__dict__ for each in caplog.records])


async def test_what_nobody_accepts_in_time_is_given_up(desk: Desk) -> None:
    await desk.end()
    async with inbox() as box:
        box.answers = [status(500)] * 1000
        async with desk.delivering(box.url, retry_seconds=6) as delivering:
            await until(lambda: delivering.given_up, 20)
    assert len(box.letters) == delivering.failed + 1 > 2
    assert (delivering.delivered, await desk.waiting()) == (0, 0)


@pytest.mark.parametrize(("asked", "seconds", "pause"), [("40", 1000, 40), ("1000", 100, 100)])
async def test_a_receiver_that_asks_for_a_pause_gets_it_but_no_longer_one_than_time_is_left(
    desk: Desk, asked: str, seconds: int, pause: int
) -> None:
    await desk.end()
    async with inbox() as box:
        box.answers = [status(503, retry_after=asked)]
        async with desk.delivering(box.url, retry_seconds=seconds) as delivering:
            await delivering.settled()
    assert pause - 10 < await desk.due_in_seconds() <= pause


def test_pauses_double_up_to_an_hour_and_are_spread() -> None:
    longest, shortest = (replace(DeliveryTiming().retry, chance=lambda chance=chance: chance) for chance in (1.0, 0.0))
    assert [longest.seconds(tries) for tries in (1, 2, 3, 11, 12, 10_000)] == [2, 4, 8, 2048, 3600, 3600]
    assert [shortest.seconds(tries) for tries in (1, 2, 10_000)] == [1, 2, 1800]


async def test_no_more_are_under_way_than_there_is_room_for(desk: Desk) -> None:
    for _ in range(20):
        await desk.end()
    async with inbox() as box:
        box.answers = [silence] * 6
        async with desk.delivering(box.url, at_once=3, given={"seconds": 0.5}) as delivering:
            await until(lambda: delivering.delivered == 20)
    assert box.most_under_way == 3
    assert delivering.failed >= 6  # and what the receiver was too busy for


async def test_what_ends_in_this_process_waits_for_no_poll(desk: Desk) -> None:
    first, never = await desk.end(), replace(QUICK, poll_seconds=NEVER)
    async with inbox() as box, desk.delivering(box.url, timing=never) as delivering:
        await until(lambda: len(box.letters) == 1)
        second = await desk.end()
        delivering.wake(second)
        await until(lambda: len(box.letters) == 2)
    assert [unwrapped(letter).data.id for letter in box.letters] == [first, second]


async def test_a_process_that_ends_lets_deliveries_arrive_and_leaves_the_rest_to_others(desk: Desk) -> None:
    late = asyncio.Event()

    async def answered_late(_: web.Request) -> web.StreamResponse:
        await late.wait()
        return web.Response()

    for _ in range(2):
        await desk.end()
    timing = replace(QUICK, margin_seconds=0.1, leave_seconds=2.0)
    async with inbox() as box, asyncio.timeout(60):
        box.answers = [answered_late, silence]
        async with desk.delivering(box.url, timing=timing, given={"seconds": NEVER}) as delivering:
            await until(lambda: box.under_way == 2)
            asyncio.get_running_loop().call_soon(late.set)
    assert (delivering.delivered, delivering.failed, await desk.waiting()) == (1, 0, 1)
    assert 0 < await desk.due_in_seconds() <= NEVER + 1


async def test_an_acceptance_that_the_store_can_not_note_is_told_once_more_as_the_same_event(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.end()
    done, failures = desk.outbox.remove, [StoreUnavailable("away")]

    async def away_once(webhook: Webhook) -> None:
        if failures:
            raise failures.pop()
        await done(webhook)

    monkeypatch.setattr(desk.outbox, "remove", away_once)
    timing = replace(QUICK, margin_seconds=0.1)
    async with inbox() as box, desk.delivering(box.url, timing=timing, given={"seconds": 2}) as delivering:
        await until(desk.waiting, 20, wanted=lambda waiting: waiting == 0)
    assert delivering.delivered == 2
    assert len({letter.headers["webhook-id"] for letter in box.letters}) == 1
    assert "outcome of a webhook not stored" in caplog.text


async def test_a_store_that_goes_away_and_comes_back_interrupts_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with server(tmp_path) as process:
        desk = Desk(f"redis://{process.address}", "restarted")
        async with inbox() as box, desk.delivering(box.url) as delivering:
            await desk.end()
            await delivering.settled()
            process.kill()
            await until(lambda: "webhooks can't be read" in caplog.text, 10)
            process.restart()
            await desk.end()
            await delivering.settled(2)
        await desk.close()
    assert caplog.text.count("webhooks can't be read") == 1


async def test_a_delivery_that_a_killed_process_had_begun_is_made_by_another(desk: Desk, redis_url: str) -> None:
    id = await desk.end()
    async with inbox() as box:
        box.answers = [silence]
        arguments = [redis_url, desk.history.keyspace.prefix, box.url, SECRET, str(KILLED_SECONDS)]
        command = [sys.executable, "-m", "tests.support.webhooks.delivering", *arguments]
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
        await until(lambda: box.under_way, 20)
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        assert await desk.waiting() == 1
        async with desk.delivering(box.url) as delivering:
            await delivering.settled()
    assert [unwrapped(letter).data.id for letter in box.letters] == [id, id]
    assert await desk.waiting() == 0
