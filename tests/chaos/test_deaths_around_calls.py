"""Workers that die between every two steps of a call: the table of docs/tools.md, row by row.

Each dies by itself at its step, another one takes over, and what counts is how often the tool was really called.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from service.api.response import (
    CodeInterpreterCall,
    McpApprovalRequest,
    McpCall,
    Response,
    ResponseStatus,
    WebSearchCall,
)
from service.responses.service import Service
from service.settings.settings import Settings, load_settings
from store.embedded import EmbeddedServer
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.inside import WatchedEngine, answer, opened, queue, working
from tests.support.chaos.mortal import APPROVED_STEPS, CALL_STEPS
from tests.support.chaos.mortals import Mortals, dead, mortals
from tests.support.sandbox.sandboxes import SandboxProcess, folder_for_all
from tests.support.search.site import searched_site
from tests.support.tools.server import McpServer, mcp_server
from tests.support.waiting import until

SECONDS = 60.0
TOKENS_PER_SECOND = 400
PATIENT: dict[str, Any] = {"lease_seconds": 12.0, "store_timeout_seconds": 4.0}
"""A store that a busy machine holds up is not away: many processes begin at once here, each with a client of tools."""

ONE_CELL = (
    "f = open('/mnt/data/runs', 'a'); f.write('x'); f.close(); print('runs:', len(open('/mnt/data/runs').read()))"
)
"""Code that says how often it ran."""

WORDS = {"send_mail": "Call the tool send_mail to {}", "look_up": 'Use the tool look_up for the word "{}"'}
pytestmark = pytest.mark.timeout(240)


class Death(NamedTuple):
    """A worker that dies at a step of a call of a tool; how often the tool is called in all, and how its item ends."""

    tool: str
    step: str
    calls: int
    status: str = "completed"

    @property
    def name(self) -> str:
        """What stands for it: in the store, and in what the tool is told."""
        return f"{self.tool}-{self.step}".replace(" ", "-").replace("_", "-")


@asynccontextmanager
async def replaced(
    program: Mortals, settings: Settings, death: Death, tools: list[Any], said: Any
) -> AsyncIterator[tuple[Response, Response | None]]:
    """A response whose worker dies at a step, as another one ended it, checked; and that which asked for approval."""
    first = None
    async with closing_aftermath(settings) as aftermath, opened(settings) as service:
        if service.toolbox.containers is not None:
            await service.toolbox.containers.start()
        if isinstance(said, str):
            id = await queue(service, said, tools=tools)
        else:
            first = await made(service, settings, aftermath, said[0], tools)
            id = await queue(service, approval(first), tools=tools, after=first.id)
        pid = await program.begin(settings, death.step)
        await until(lambda: dead(pid), SECONDS, f"the worker doesn't die {death.step}")
        async with working(settings, WatchedEngine(TOKENS_PER_SECOND)):
            await until(lambda: ended(aftermath, id), SECONDS, f"the job is stuck: its worker died {death.step}")
        await aftermath.check([id])
        yield await aftermath.response(id), first


@asynccontextmanager
async def closing_aftermath(settings: Settings) -> AsyncIterator[Aftermath]:
    """What is left in the store, which is hung up on at the end."""
    aftermath = Aftermath(settings)
    try:
        yield aftermath
    finally:
        await aftermath.close()


async def ended(aftermath: Aftermath, id: str) -> bool:
    """Whether a response has ended, and nothing is left of its job."""
    return not await aftermath.left_over() and id in await aftermath.ids()


async def made(service: Service, settings: Settings, aftermath: Aftermath, said: str, tools: list[Any]) -> Response:
    """A response in the background, made by a worker that lives."""
    id = await queue(service, said, tools=tools)
    async with working(settings, WatchedEngine(TOKENS_PER_SECOND)):
        await until(lambda: ended(aftermath, id), SECONDS)
    return await aftermath.response(id)


def approval(asking: Response) -> Any:
    """What approves the call for which a response asks."""
    request = asking.output[-1]
    assert isinstance(request, McpApprovalRequest)
    return [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}]


def call_of(response: Response) -> Any:
    """Its one call."""
    (call,) = [item for item in response.output if isinstance(item, McpCall | CodeInterpreterCall)]
    return call


def common(store: EmbeddedServer, prefix: str, **more: Any) -> Settings:
    """Settings over a part of the store of its own."""
    return load_settings(
        redis_url=store.url, key_prefix=prefix, demo_tokens_per_second=TOKENS_PER_SECOND, **PATIENT, **more
    )


# --- servers of tools ---

MAIL = [
    Death("send_mail", "noting a call", 1),
    Death("send_mail", "calling", 0, "failed"),
    Death("send_mail", "called", 1, "failed"),
    Death("send_mail", "keeping an outcome", 1, "failed"),
    Death("send_mail", "kept an outcome", 1),
    Death("send_mail", "finishing", 1),
]
"""What may have an effect: at most once."""

LOOK_UP = [
    *(Death("look_up", step, 1) for step in ("noting a call", "calling", "kept an outcome", "finishing")),
    *(Death("look_up", step, 2) for step in ("called", "keeping an outcome")),
]
"""What only reads: again where nobody knows."""

APPROVED = [
    *(Death("send_mail", step, 1) for step in ("writing", "written", "using up")),
    Death("send_mail", "used up", 0, "failed"),
    *(Death("send_mail", step, 1, "failed") for step in ("called", "keeping an outcome")),
    *(Death("send_mail", step, 1) for step in ("kept an outcome", "finishing")),
    *(Death("look_up", step, 1) for step in ("used up", "kept an outcome")),
    *(Death("look_up", step, 2) for step in ("called", "keeping an outcome")),
]
"""What somebody approved: as without that, but that nothing was called before the approval is used up."""


async def call_a_server(program: Mortals, store: EmbeddedServer, mcp: McpServer, death: Death, *, asks: bool) -> None:
    """A call of a server's tool, which perhaps somebody has to approve, and a death."""
    name = f"{'approved-' if asks else ''}{death.name}"
    settings = common(store, name, mcp_allow=mcp.url)
    policy = "always" if asks else "never"
    declared = {"type": "mcp", "server_label": "maths", "server_url": mcp.url, "require_approval": policy}
    words = WORDS[death.tool].format(name)
    said = [words] if asks else words
    async with replaced(program, settings, death, [declared | {"allowed_tools": [death.tool]}], said) as (made, first):
        call = call_of(made)
        assert (made.status, call.status) == (ResponseStatus.COMPLETED, death.status), death
        assert mcp.began(death.tool, name) == death.calls, death
        assert ("not known" in str(call.error)) is (death.status == "failed"), death
        request = None if first is None else first.output[-1].id
        assert call.approval_request_id == request


@pytest.mark.parametrize(("deaths", "asks"), [(MAIL + LOOK_UP, False), (APPROVED, True)], ids=["free", "approved"])
async def test_a_worker_dies_between_two_steps_of_a_call_of_a_server(
    tmp_path: Path, deaths: list[Death], asks: bool
) -> None:
    with EmbeddedServer(tmp_path / "store") as store, mcp_server(tmp_path / "mcp") as mcp:
        mcp.let_go()
        async with mortals() as program, asyncio.TaskGroup() as group:
            for death in deaths:
                group.create_task(call_a_server(program, store, mcp, death, asks=asks))


def test_no_step_is_left_out() -> None:
    around = {"noting a call", "calling", "called", "keeping an outcome", "kept an outcome"}
    assert {death.step for death in MAIL} == {death.step for death in LOOK_UP} == around | {"finishing"}
    assert [death.step for death in APPROVED if death.tool == "send_mail"] == [*APPROVED_STEPS]
    assert around < {*CALL_STEPS}


# --- code ---


async def run_code(program: Mortals, store: EmbeddedServer, sandbox: SandboxProcess, step: str) -> None:
    """A cell, and a death."""
    death = Death("python", step, 1)
    settings = common(store, death.name, sandbox=sandbox.listen)
    tool = {"type": "code_interpreter", "container": {"type": "auto"}}
    async with replaced(program, settings, death, [tool], f"Use python: {ONE_CELL}") as (made, _):
        assert (made.status, call_of(made).status) == (ResponseStatus.COMPLETED, death.status), death
        assert "runs: 1" in answer(made), death


async def test_a_worker_dies_between_two_steps_of_code_and_it_runs_once(tmp_path: Path) -> None:
    steps = (*CALL_STEPS, "finishing")
    places = {"sandbox_sessions": 2 * len(steps), "sandbox_tenant_sessions": 2 * len(steps)}
    with EmbeddedServer(tmp_path / "store") as store, folder_for_all() as shared:
        sandbox = SandboxProcess(tmp_path / "sandbox", shared, **places)
        try:
            async with mortals() as program, asyncio.TaskGroup() as group:
                for step in steps:
                    group.create_task(run_code(program, store, sandbox, step))
        finally:
            sandbox.kill()


# --- the browser ---

SEARCHES = [
    *(Death("search", step, 1) for step in ("noting a call", "calling", "kept an outcome", "finishing")),
    *(Death("search", step, 2) for step in ("called", "keeping an outcome")),
]
PAGES = [
    *(Death("page", step, 1) for step in ("noting a call again", "calling again", "kept an outcome again")),
    *(Death("page", step, 2) for step in ("called again", "keeping an outcome again")),
]


async def search(program: Mortals, store: EmbeddedServer, death: Death) -> None:
    """A search, a page that is opened, and a death at one of the two."""
    with searched_site() as site:
        site.let_go()
        place = {"search": "searxng", "search_url": site.url, "search_hosts": "127.0.0.1"}
        settings = common(store, death.name, **place)
        said = 'Search the web for "high water" in Brest'
        async with replaced(program, settings, death, [{"type": "web_search"}], said) as (made, _):
            calls = [item for item in made.output if isinstance(item, WebSearchCall)]
            assert [each.status for each in calls] == ["completed"] * 2, death
            assert f"High water is at ten ([{site.url.removeprefix('http://')}]({site.url}/page))." in answer(made)
            counted = {path: site.asked.count(path) for path in ("/search", "/page")}
            assert counted == {"/search": 1, "/page": 1} | {f"/{death.tool}": death.calls}, death


async def test_a_worker_dies_between_two_steps_of_a_search(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "store") as store:
        async with mortals() as program, asyncio.TaskGroup() as group:
            for death in SEARCHES + PAGES:
                group.create_task(search(program, store, death))
