"""Workers that die between every two steps of a call: the table of docs/tools.md, row by row.

Each dies by itself at its step, another one takes over, and what counts is how often the tool was really called.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from service.api.response import (
    CodeInterpreterCall,
    FileSearchCall,
    McpApprovalRequest,
    McpCall,
    Response,
    ResponseStatus,
    WebSearchCall,
)
from service.responses.service import Service
from service.settings.settings import Settings, load_settings
from store.embedded import EmbeddedServer
from store.redis.connection import connect
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import each_dies
from tests.support.chaos.inside import WatchedEngine, answer, opened, queue, working
from tests.support.chaos.mortal import APPROVED_STEPS, CALL_STEPS
from tests.support.chaos.mortals import Mortals, mortals
from tests.support.sandbox.sandboxes import SandboxProcess, folder_for_all
from tests.support.search.site import searched_site
from tests.support.service.background import changed
from tests.support.tools import library
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
    async with Aftermath(settings) as aftermath, opened(settings) as service:
        if service.toolbox.containers is not None:
            await service.toolbox.containers.start()
        if isinstance(said, str):
            id = await queue(service, said, tools=tools)
        else:
            first = await made(service, settings, aftermath, said[0], tools)
            id = await queue(service, approval(first), tools=tools, after=first.id)
        await program.die(settings, death.step)
        async with working(settings, WatchedEngine(TOKENS_PER_SECOND)):
            await until(lambda: aftermath.ended(id), SECONDS, f"the job is stuck: its worker died {death.step}")
        await aftermath.check([id])
        yield await aftermath.response(id), first


async def made(service: Service, settings: Settings, aftermath: Aftermath, said: str, tools: list[Any]) -> Response:
    """A response in the background, made by a worker that lives."""
    id = await queue(service, said, tools=tools)
    async with working(settings, WatchedEngine(TOKENS_PER_SECOND)):
        await until(lambda: aftermath.ended(id), SECONDS)
    return await aftermath.response(id)


def approval(asking: Response) -> Any:
    """What approves the call for which a response asks."""
    request = asking.output[-1]
    assert isinstance(request, McpApprovalRequest)
    return [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}]


def call_of(response: Response) -> Any:
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
"""Steps that only read: they are taken again where nobody knows."""

APPROVED = [
    *(Death("send_mail", step, 1) for step in ("writing", "written", "using up")),
    Death("send_mail", "used up", 0, "failed"),
    *(Death("send_mail", step, 1, "failed") for step in ("called", "keeping an outcome")),
    *(Death("send_mail", step, 1) for step in ("kept an outcome", "finishing")),
    *(Death("look_up", step, 1) for step in ("used up", "kept an outcome")),
    *(Death("look_up", step, 2) for step in ("called", "keeping an outcome")),
]
"""What somebody approved: as without that, but that nothing was called before the approval is used up."""


async def call_a_server(program: Mortals, settings: Settings, death: Death, *, mcp: McpServer, asks: bool) -> None:
    """A call of a server's tool, which perhaps somebody has to approve, and a death."""
    name = f"{'approved-' if asks else ''}{death.name}"
    words = WORDS[death.tool].format(name)
    said = [words] if asks else words
    async with replaced(program, settings, death, [declared(mcp, death.tool, asks=asks)], said) as (made, first):
        call = call_of(made)
        assert (made.status, call.status) == (ResponseStatus.COMPLETED, death.status)
        assert mcp.began(death.tool, name) == death.calls
        assert ("not known" in str(call.error)) is (death.status == "failed")
        request = None if first is None else first.output[-1].id
        assert call.approval_request_id == request


def declared(mcp: McpServer, tool: str, *, asks: bool) -> Any:
    """The server with one of its tools."""
    policy = {"require_approval": "always" if asks else "never", "allowed_tools": [tool]}
    return {"type": "mcp", "server_label": "maths", "server_url": mcp.url} | policy


@pytest.mark.parametrize(("deaths", "asks"), [(MAIL + LOOK_UP, False), (APPROVED, True)], ids=["free", "approved"])
async def test_a_worker_dies_between_two_steps_of_a_call_of_a_server(
    tmp_path: Path, deaths: list[Death], asks: bool
) -> None:
    with EmbeddedServer(tmp_path / "store") as store, mcp_server(tmp_path / "mcp") as mcp:
        mcp.let_go()
        await each_dies(deaths, partial(call_a_server, mcp=mcp, asks=asks), partial(common, store, mcp_allow=mcp.url))


async def test_a_worker_that_dies_when_it_has_asked_for_an_approval_asks_once(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "store") as store, mcp_server(tmp_path / "mcp") as mcp:
        settings, tools = common(store, "asked", mcp_allow=mcp.url), [declared(mcp, "send_mail", asks=True)]
        death, words = Death("send_mail", "finishing", 0), WORDS["send_mail"].format("Bob")
        async with mortals() as program, replaced(program, settings, death, tools, words) as (made, _):
            assert isinstance(made.output[-1], McpApprovalRequest)
        redis = connect(store.url)
        assert await redis.zcard(f"asked:{{{made.id[5:7]}}}:approvals:default") == 1
        await redis.aclose()


def test_no_step_is_left_out() -> None:
    around = {"noting a call", "calling", "called", "keeping an outcome", "kept an outcome"}
    assert {death.step for death in MAIL} == {death.step for death in LOOK_UP} == around | {"finishing"}
    assert [death.step for death in APPROVED if death.tool == "send_mail"] == [*APPROVED_STEPS]
    assert around < {*CALL_STEPS}


# --- code ---


async def run_code(program: Mortals, settings: Settings, step: str) -> None:
    tool, death = {"type": "code_interpreter", "container": {"type": "auto"}}, Death("python", step, 1)
    async with replaced(program, settings, death, [tool], f"Use python: {ONE_CELL}") as (made, _):
        assert (made.status, call_of(made).status) == (ResponseStatus.COMPLETED, death.status)
        assert "runs: 1" in answer(made)


async def test_a_worker_dies_between_two_steps_of_code_and_it_runs_once(tmp_path: Path) -> None:
    steps = (*CALL_STEPS, "finishing")
    places = {"sandbox_sessions": 2 * len(steps), "sandbox_tenant_sessions": 2 * len(steps)}
    with EmbeddedServer(tmp_path / "store") as store, folder_for_all() as shared:
        sandbox = SandboxProcess(tmp_path / "sandbox", shared, **places)
        try:
            await each_dies(steps, run_code, partial(common, store, sandbox=sandbox.listen))
        finally:
            sandbox.kill()


# --- searches of files, and the browser ---

ONCE = ("noting a call", "calling", "kept an outcome", "finishing")
TWICE = ("called", "keeping an outcome")
FILES, SEARCHES = (
    [*(Death(tool, step, 1) for step in ONCE), *(Death(tool, step, 2) for step in TWICE)]
    for tool in ("files", "search")
)
PAGES = [
    *(Death("page", f"{step} again", 1) for step in ONCE[:-1]),
    *(Death("page", f"{step} again", 2) for step in TWICE),
]
"""Steps that only read: they are taken again where nobody knows."""


async def search_files(program: Mortals, settings: Settings, death: Death, *, folder: Path) -> None:
    """A search of files, and a death."""
    tool = {"type": "file_search", "vector_store_ids": ["vs_1"]}
    async with replaced(program, settings, death, [tool], f'Search my files for "{death.name}".') as (made, _):
        (search,) = [item for item in made.output if isinstance(item, FileSearchCall)]
        assert (search.status, search.queries) == ("completed", [death.name])
        assert "High water is at ten." in answer(made)
        assert [call["queries"] for call in library.given(folder)].count([death.name]) == death.calls


async def test_a_worker_dies_between_two_steps_of_a_search_of_files(tmp_path: Path) -> None:
    folder, servers = tmp_path / "mcp", tmp_path / "mcp.toml"
    with EmbeddedServer(tmp_path / "store") as store, mcp_server(folder, "tests.support.tools.library") as mcp:
        servers.write_text(f'[library]\nurl = "{mcp.url}"\ntype = "file_search"\ntool = "search"\n')
        await each_dies(FILES, partial(search_files, folder=folder), partial(common, store, mcp_servers=str(servers)))


async def search(program: Mortals, settings: Settings, death: Death) -> None:
    """A search, a page that is opened, and a death at one of the two."""
    with searched_site() as site:
        site.let_go()
        found = changed(settings, search="searxng", search_url=site.url, search_hosts=("127.0.0.1",))
        said = 'Search the web for "high water" in Brest'
        async with replaced(program, found, death, [{"type": "web_search"}], said) as (made, _):
            calls = [item for item in made.output if isinstance(item, WebSearchCall)]
            assert [each.status for each in calls] == ["completed"] * 2
            assert f"High water is at ten ([{site.url.removeprefix('http://')}]({site.url}/page))." in answer(made)
            counted = {path: site.asked.count(path) for path in ("/search", "/page")}
            assert counted == {"/search": 1, "/page": 1} | {f"/{death.tool}": death.calls}


async def test_a_worker_dies_between_two_steps_of_a_search(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "store") as store:
        await each_dies(SEARCHES + PAGES, search, partial(common, store))
