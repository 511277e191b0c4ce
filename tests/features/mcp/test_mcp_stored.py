"""Calls of tools and the store: no call is made that isn't in the log, and what a conversation has shown is kept."""

from typing import Any

import pytest

from service.harmony.tokens import CALL, unpack
from service.process import Settings
from service.responses.output.journal import decode_sampled
from store.errors import LeaseLost, StoreUnavailable
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from store.jobs.model import Lease
from tests.features.mcp.test_mcp_responses import ADD, allowing, call, kinds, server
from tests.support.service.background import ended, submitted
from tests.support.service.inside import answer, scripted, serving, then, thought
from tests.support.tools.server import McpServer

WORDS = " ".join(str(number**3) for number in range(1_000))


async def test_a_call_whose_log_is_full_is_not_made(settings: Settings, fixture: McpServer) -> None:
    engine = scripted([[token] for token in [*thought(WORDS), *then(call("add", ADD))]])
    before = fixture.began("add")
    full = allowing(settings, fixture, max_event_log_bytes=10_000)
    async with serving(full, engine) as inside, inside.client() as client:
        found = await ended(client, (await submitted(client, tools=[server(fixture)])).id)

    assert found.error is not None
    assert (found.status, "HARMONIUM_MAX_EVENT_LOG_BYTES" in found.error.message) == ("failed", True)
    assert fixture.began("add") == before


@pytest.mark.parametrize("handed_over", [False, True])
async def test_a_call_that_the_store_could_not_keep_is_made_once_it_can(
    settings: Settings, fixture: McpServer, monkeypatch: pytest.MonkeyPatch, handed_over: bool
) -> None:
    refused: list[str] = []
    write = Jobs.write

    async def away(jobs: Jobs, lease: Lease, entry: LogEntry, **more: Any) -> None:
        if CALL in unpack(decode_sampled(entry.blob).tokens) and not refused:
            refused.append(lease.id)
            assert fixture.began("add") == before
            raise LeaseLost("somebody else has it") if handed_over else StoreUnavailable("it is away")
        await write(jobs, lease, entry, **more)

    monkeypatch.setattr(Jobs, "write", away)
    engine = scripted([call("add", ADD)], *([[call("add", ADD)]] if handed_over else []), [answer("It is 42.")])
    before = fixture.began("add")
    quick = allowing(settings, fixture, lease_seconds=1.0)
    async with serving(quick, engine) as inside, inside.client() as client:
        id = (await submitted(client, tools=[server(fixture)])).id
        found = await ended(client, id)

    assert (found.status, found.output_text, refused) == ("completed", "It is 42.", [id])
    assert kinds(found) == ["mcp_list_tools", "mcp_call", "message"]
    assert fixture.began("add") == before + 1
