"""Workers that die between every two steps of a call: the table of docs/tools.md, row by row.

Each dies by itself at its step, another one takes over, and what counts is how often the tool was really called.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from service.api.response import (
    CodeInterpreterCall,
    McpApprovalRequest,
    McpCall,
    Response,
    ResponseStatus,
)
from service.features.python.interpreter import containers_of
from service.process import Settings
from service.responses.service import Service
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import TOKENS_PER_SECOND, Scenario, Stage
from tests.support.chaos.inside import WatchedEngine, answer, opened, queue, working
from tests.support.chaos.mortal import CALL_STEPS
from tests.support.sandbox.sandboxes import SandboxProcess, folder_for_all
from tests.support.tools.server import McpServer, mcp_server
from tests.support.waiting import until

SECONDS = 60.0
ONE_CELL = (
    "f = open('/mnt/data/runs', 'a'); f.write('x'); f.close(); print('runs:', len(open('/mnt/data/runs').read()))"
)
"""Code that says how often it ran."""

WORDS = {"send_mail": "Call the tool send_mail to {}", "look_up": 'Use the tool look_up for the word "{}"'}


class Death(NamedTuple):
    """A worker that dies at a step of a call of a tool; how often the tool is called in all, and how its item ends."""

    tool: str
    step: str
    calls: int
    status: str = "completed"
    approved: bool = False

    @property
    def name(self) -> str:
        """The word for it in the arguments of the tool."""
        return f"{'approved-' if self.approved else ''}{self.tool}-{self.step}".replace(" ", "-").replace("_", "-")


@asynccontextmanager
async def replaced(
    stage: Stage, settings: Settings, death: Death, tools: list[Any], said: Any
) -> AsyncIterator[tuple[Response, Response | None]]:
    """A response whose worker dies at a step, as another one ended it, checked; and that which asked for approval."""
    first = None
    async with Aftermath(settings) as aftermath, opened(settings) as service:
        if (containers := containers_of(service)) is not None:
            await containers.start()
        if isinstance(said, str):
            id = await queue(service, said, tools=tools)
        else:
            first = await made(service, settings, aftermath, said[0], tools)
            id = await queue(service, approval(first), tools=tools, after=first.id)
        await stage.program.die(settings, death.step)
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
    """The item that approves the call for which a response asks."""
    request = asking.output[-1]
    assert isinstance(request, McpApprovalRequest)
    return [{"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}]


def call_of(response: Response) -> Any:
    (call,) = [item for item in response.output if isinstance(item, McpCall | CodeInterpreterCall)]
    return call


# --- servers of tools ---

MAIL = [
    Death("send_mail", "noting a call", 1),
    Death("send_mail", "calling", 0, "failed"),
    Death("send_mail", "called", 1, "failed"),
    Death("send_mail", "keeping an outcome", 1, "failed"),
    Death("send_mail", "kept an outcome", 1),
    Death("send_mail", "finishing", 1),
]
"""Calls that may have an effect: at most once."""

LOOK_UP = [
    *(Death("look_up", step, 1) for step in ("noting a call", "calling", "kept an outcome", "finishing")),
    *(Death("look_up", step, 2) for step in ("called", "keeping an outcome")),
]
"""Steps that only read: they are taken again where nobody knows."""

APPROVED = [
    each._replace(approved=True)
    for each in (
        *(Death("send_mail", step, 1) for step in ("writing", "written", "using up")),
        Death("send_mail", "used up", 0, "failed"),
        *(Death("send_mail", step, 1, "failed") for step in ("called", "keeping an outcome")),
        *(Death("send_mail", step, 1) for step in ("kept an outcome", "finishing")),
        *(Death("look_up", step, 1) for step in ("used up", "kept an outcome")),
        *(Death("look_up", step, 2) for step in ("called", "keeping an outcome")),
    )
]
"""Approved calls: as without approval, but nothing is called before the approval is used up."""


async def call_a_server(stage: Stage, death: Death) -> None:
    """A call of a server's tool, which perhaps somebody has to approve, and a death."""
    mcp = await stage.shared(mcp_server)
    mcp.let_go()
    words, settings = WORDS[death.tool].format(death.name), stage.settings(mcp_allow=mcp.url)
    said = [words] if death.approved else words
    tools = [declared(mcp, death.tool, asks=death.approved)]
    async with replaced(stage, settings, death, tools, said) as (made, first):
        call = call_of(made)
        assert (made.status, call.status) == (ResponseStatus.COMPLETED, death.status)
        assert mcp.began(death.tool, death.name) == death.calls
        assert ("not known" in str(call.error)) is (death.status == "failed")
        request = None if first is None else first.output[-1].id
        assert call.approval_request_id == request


def declared(mcp: McpServer, tool: str, *, asks: bool) -> Any:
    """The server with one of its tools."""
    policy = {"require_approval": "always" if asks else "never", "allowed_tools": [tool]}
    return {"type": "mcp", "server_label": "maths", "server_url": mcp.url} | policy


# --- code ---


CODE = [Death("python", step, 1) for step in (*CALL_STEPS, "finishing")]


@contextmanager
def sandbox(folder: Path) -> Iterator[SandboxProcess]:
    places = {"sandbox_sessions": 2 * len(CODE), "sandbox_tenant_sessions": 2 * len(CODE)}
    with folder_for_all() as shared:
        process = SandboxProcess(folder, shared, **places)
        try:
            yield process
        finally:
            process.kill()


async def run_code(stage: Stage, death: Death) -> None:
    """Code, and a death: it runs once."""
    settings = stage.settings(sandbox=(await stage.shared(sandbox)).listen)
    tool = {"type": "code_interpreter", "container": {"type": "auto"}}
    async with replaced(stage, settings, death, [tool], f"Use python: {ONE_CELL}") as (made, _):
        assert (made.status, call_of(made).status) == (ResponseStatus.COMPLETED, death.status)
        assert "runs: 1" in answer(made)


SERVERS = Scenario(call_a_server, [*MAIL, *LOOK_UP, *APPROVED], pushed=MAIL[2])
PYTHON = Scenario(run_code, CODE, pushed=Death("python", "ran", 1))
