"""Calls of tools and the store: no call is made that isn't in the log, and what a conversation has shown is kept."""

from pathlib import Path
from typing import Any

import pytest

from service.harmony.tokens import CALL, unpack
from service.responses.output.journal import decode_sampled
from service.settings.settings import Settings
from store.errors import LeaseLost, StoreUnavailable
from store.fsck.check import Fsck, Report
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import Lease
from store.redis.connection import connect
from tests.responses.tools.test_mcp_responses import ADD, allowing, call, kinds, server
from tests.support.service.background import ended, submitted
from tests.support.service.inside import answer, scripted, serving, then, thought
from tests.support.service.seen import ask
from tests.support.store.backups import back_up, bring_back
from tests.support.tools.server import McpServer

WORDS = " ".join(str(number**3) for number in range(1_000))


async def test_a_call_whose_log_is_full_is_not_made(settings: Settings, fixture: McpServer) -> None:
    engine = scripted([[token] for token in [*thought(WORDS), *then(call("add", ADD))]])
    before = fixture.began("add")
    full = allowing(settings, fixture, max_log_bytes=10_000)
    async with serving(full, engine) as inside, inside.client() as client:
        found = await ended(client, (await submitted(client, tools=[server(fixture)])).id)

    assert found.error is not None
    assert (found.status, "HARMONIUM_MAX_LOG_BYTES" in found.error.message) == ("failed", True)
    assert fixture.began("add") == before


async def test_a_log_that_an_outcome_filled_ends_the_response_whole(settings: Settings, fixture: McpServer) -> None:
    said = [[token] for token in answer(WORDS)]
    engine = scripted([call("noise", '{"n":30000}')], said)
    tools = [server(fixture, allowed_tools=["noise"])]
    full = allowing(settings, fixture, max_log_bytes=15_000)
    async with serving(full, engine) as inside, inside.client() as client:
        found = await ended(client, (await submitted(client, tools=tools)).id)
        again = await client.responses.retrieve(found.id)

    assert found.error is not None
    assert (found.status, "HARMONIUM_MAX_LOG_BYTES" in found.error.message) == ("failed", True)
    assert kinds(found)[:2] == ["mcp_list_tools", "mcp_call"]
    assert len(found.output[1].to_dict()["output"]) == 30_000  # type: ignore[arg-type]
    assert again.output == found.output
    assert fixture.began("noise") == 1


@pytest.mark.parametrize("handed_over", [False, True])
async def test_a_call_that_the_store_could_not_keep_is_made_once_it_can(
    settings: Settings, fixture: McpServer, monkeypatch: pytest.MonkeyPatch, handed_over: bool
) -> None:
    refused: list[str] = []
    write = Jobs.write

    async def away(jobs: Jobs, lease: Lease, entry: Entry, **more: Any) -> None:
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


async def test_what_a_conversation_has_shown_of_servers_is_sound_and_outlives_a_backup(
    settings: Settings, fixture: McpServer, tmp_path: Path
) -> None:
    allowed, file, tools = allowing(settings, fixture), tmp_path / "backup", [server(fixture)]
    engine = scripted([call("add", ADD)], [answer("42.")], [answer("Still 42.")], [answer("Yes.")])
    async with serving(allowed, engine) as inside, inside.client() as client:
        first = await ask(client, input="2 + 40?", tools=tools)
        second = await ask(client, input="Sure?", tools=tools, previous_response_id=first.id)
        await back_up(settings.redis_url, settings.key_prefix, file)
        report = await checked(settings)

    moved = allowed.model_copy(update={"key_prefix": f"{settings.key_prefix}-restored"})
    await bring_back(moved.redis_url, moved.key_prefix, file)
    async with serving(moved, engine) as inside, inside.client() as client:
        stored = await client.responses.retrieve(first.id)
        third = await ask(client, input="So?", tools=tools, previous_response_id=second.id)

    assert (report.found, report.unjudged, report.unknown) == (0, [], 0)
    assert (await checked(moved)).found == 0
    assert kinds(first) == ["mcp_list_tools", "mcp_call", "message"]
    assert stored.output == first.output
    assert (kinds(second), kinds(third)) == (["message"], ["message"])


async def checked(settings: Settings) -> Report:
    """What fsck finds in the store."""
    fsck = Fsck(connect(settings.redis_url), prefix=settings.key_prefix, shards=1)
    try:
        *_, report = [step async for step in fsck.run(repair=False)]
    finally:
        await fsck.close()
    assert isinstance(report, Report)
    return report
