"""Streams of background responses that can't go on, can't begin, or are too many: nobody takes a part for the whole."""

import logging
from typing import Any

import pytest
from openai import APIConnectionError, InternalServerError

from service.settings.settings import Settings
from store.jobs.log import GONE
from tests.support.engine.scripted import Stall
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.background import changed, opened_stream, said
from tests.support.service.inside import Inside, opened, scripted, serving
from tests.support.service.seen import ask
from tests.support.store.counted import usage

TENANT = "default"


async def delete_log(inside: Inside, id: str) -> None:
    """What the store does for space."""
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
