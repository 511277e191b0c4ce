"""Pictures in the answers of MCP servers: shown to a model that sees, stored once, and bounded."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from service.process import Settings, load_settings
from tests.features.chat_servers.test_pictures import HELLO, Seeing, seeing
from tests.support.chaos.storm import QUICK
from tests.support.chat.standin import answer, chatting, stall
from tests.support.markup.writing import Turn
from tests.support.oracles.event_grammar import check_stream
from tests.support.pictures import png, shown_in, url_of
from tests.support.service.inside import serving
from tests.support.service.process import WorkerProcess
from tests.support.tools.server import McpServer

CAT, DOG = png(grey=10), png(grey=200)
LINE = f"[image/png, {len(CAT):,} bytes]"


def calls(*greys: Any) -> Turn:
    return Turn("", "", [("picture", {} if each is None else {"greys": each}) for each in greys])


@asynccontextmanager
async def calling(
    settings: Settings, fixture: McpServer, turns: Sequence[Turn], **more: Any
) -> AsyncIterator[tuple[Seeing, dict[str, Any]]]:
    """A service whose model says these turns, and the members of a request that may use the server."""
    says = [lambda _, turn=turn: answer(turn) for turn in turns]
    tool = {"type": "mcp", "server_label": "maths", "server_url": fixture.url, "require_approval": "never"}
    async with seeing(settings, *says, mcp_allow=(fixture.url,), **more) as asked:
        yield asked, {"tools": [tool]}


def output_of(response: Any) -> Any:
    return next(each for each in response.output if each.type == "mcp_call").output


async def test_a_model_sees_the_pictures_of_an_answer_now_and_in_later_turns_and_each_is_stored_once(
    settings: Settings, fixture: McpServer
) -> None:
    async with calling(settings, fixture, [calls([10, 200]), calls([10]), HELLO, HELLO]) as (asked, tools):
        response = await asked.ask("Look.", **tools)
        assert output_of(response) == f"here\n{LINE}\n{LINE}"
        assert asked.shown() == ["Look.", "", "here", url_of(CAT), url_of(DOG), "", "here", url_of(CAT)]
        assert len(await asked.kept()) == 2
        await asked.ask("And?", response)
        assert asked.shown()[2:5] == ["here", url_of(CAT), url_of(DOG)]
        await asked.client.responses.delete(response.id)


async def test_a_model_that_does_not_see_reads_lines_and_nothing_is_stored(
    settings: Settings, fixture: McpServer
) -> None:
    async with calling(settings, fixture, [calls([10]), HELLO], sees=False) as (asked, tools):
        response = await asked.ask("Look.", **tools)
        assert output_of(response) == f"here\n{LINE}"
        assert asked.shown() == ["Look.", "", f"here\n{LINE}"]
        assert await asked.kept() == []


async def test_a_picture_that_is_none_leaves_its_line(settings: Settings, fixture: McpServer) -> None:
    async with calling(settings, fixture, [calls(None), HELLO]) as (asked, tools):
        response = await asked.ask("Look.", **tools)
        assert response.output_text == "A cat."
        assert asked.shown()[-1] == "here\n[image/png, 12 bytes]"
        assert await asked.kept() == []


@pytest.mark.parametrize(
    ("bounds", "most"),
    [({"bytes": 50}, {}), ({"pixels": 1_000}, {}), ({}, {"TOLD_BYTES": 50}), ({}, {"TOLD_PICTURES": 0})],
)
async def test_pictures_beyond_the_bounds_leave_their_lines(
    settings: Settings, fixture: McpServer, monkeypatch: pytest.MonkeyPatch, bounds: Any, most: dict[str, int]
) -> None:
    for name, value in most.items():
        monkeypatch.setattr(f"service.responses.prepare.{name}", value)
    async with calling(settings, fixture, [calls([10]), HELLO], pictures=bounds) as (asked, tools):
        await asked.ask("Look.", **tools)
        assert asked.shown()[-1] == f"here\n{LINE}"
        assert await asked.kept() == []


async def test_killed_behind_an_answer_with_pictures_its_heir_shows_and_stores_the_same(
    settings: Settings, fixture: McpServer, tmp_path: Path
) -> None:
    begun = asyncio.Event()

    async def hold() -> None:
        begun.set()
        await stall()

    says = (lambda _: answer(calls([10, 200])), lambda _: (hold,), lambda _: answer(HELLO))
    async with chatting(*says, sees=True) as eyes:
        listed = [{"name": eyes.model, "kind": "chat", "urls": [eyes.url], "sees": True}]
        (tmp_path / "engines.json").write_text(json.dumps({"engines": listed}))
        stored = {"redis_url": settings.redis_url, "redis_prefix": settings.redis_prefix, "mcp_allow": fixture.url}
        given: dict[str, Any] = QUICK | stored | {"engines": str(tmp_path / "engines.json")}
        here = load_settings(**given, embedded_worker=False)
        async with serving(here) as service, service.client() as client:
            asked = Seeing(client, eyes, service, settings)
            tool = {"type": "mcp", "server_label": "maths", "server_url": fixture.url, "require_approval": "never"}
            stream = await asked.client.responses.create(
                model=eyes.model,
                input="Look.",
                background=True,
                stream=True,
                tools=[tool],  # type: ignore[list-item]
            )
            first = await asyncio.to_thread(WorkerProcess, tmp_path / "first", **given)
            events: list[Any] = []
            async for event in stream:
                events.append(event.to_dict())
                if event.type == "response.mcp_call.completed":
                    break
            await begun.wait()
            first.kill()
            heir = await asyncio.to_thread(WorkerProcess, tmp_path / "heir", **given)
            try:
                response = check_stream([*events, *[event.to_dict() async for event in stream]])
            finally:
                await asyncio.to_thread(heir.stop)
            assert response["status"] == "completed"
            assert len(await asked.kept()) == 2
    pictures = ["Look.", "", "here", url_of(CAT), url_of(DOG)]
    assert [shown_in(each.body) for each in eyes.chats][1:] == [pictures] * 2
