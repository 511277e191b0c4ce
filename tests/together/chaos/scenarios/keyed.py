"""Requests with a key, whose API dies at any step of them: whoever asks again gets what is stored once.

A call of theirs that may have an effect is made once, or the model is told that nobody knows.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import TOKENS_PER_SECOND, Scenario, Stage
from tests.support.chaos.inside import WatchedEngine, counted
from tests.support.chaos.mortal import KEYED_STEPS, QUESTION
from tests.support.chaos.mortals import dead
from tests.support.service.background import changed
from tests.support.service.inside import serving
from tests.support.service.listed import said
from tests.support.service.process import MODEL
from tests.support.tools.server import McpServer, mcp_server
from tests.support.waiting import until

REPEATS = 3
"""How many ask again at once."""

SECONDS = 60.0
NAMED = ("user", "My name is Ada.")
ASKED = ("user", QUESTION)
ANSWERED = ("assistant", counted(5))
ITEM: Any = {"role": "user", "content": QUESTION}


class Asking(NamedTuple):
    """One client's request, by its key, perhaps in a conversation; and the id that it saw of what is made."""

    key: str
    conversation: str
    seen: list[str]

    @property
    def headers(self) -> dict[str, str]:
        return {"Idempotency-Key": self.key}


async def plain(client: AsyncOpenAI, asking: Asking, **body: Any) -> str:
    response = await client.responses.create(model=MODEL, input=QUESTION, extra_headers=asking.headers, **body)
    return response.id


async def stream(client: AsyncOpenAI, asking: Asking, headers: dict[str, str] | None = None) -> str:
    create: Any = client.responses.create
    headers = asking.headers | (headers or {})
    events = await create(model=MODEL, input=QUESTION, stream=True, extra_headers=headers)
    async with events:
        async for event in events:
            if event.type == "response.created":
                asking.seen.append(event.response.id)
    assert event.type == "response.completed"
    return event.response.id


async def join(client: AsyncOpenAI, asking: Asking) -> str:
    return await plain(client, asking, conversation=asking.conversation)


async def queue(client: AsyncOpenAI, asking: Asking) -> str:
    return await plain(client, asking, background=True)


async def detach(client: AsyncOpenAI, asking: Asking) -> str:
    return await stream(client, asking, {"X-Harmonium-Detach": "true"})


async def add(client: AsyncOpenAI, asking: Asking) -> str:
    create = client.conversations.items.create
    return (await create(asking.conversation, items=[ITEM], extra_headers=asking.headers)).data[0].id


async def begin(client: AsyncOpenAI, asking: Asking) -> str:
    return (await client.conversations.create(items=[ITEM], extra_headers=asking.headers)).id


Ask = Callable[[AsyncOpenAI, Asking], Awaitable[str]]

STORING: dict[Ask, tuple[str, ...]] = {
    plain: ("appending", "appended"),
    stream: ("appending", "appended"),
    join: ("held", "adding", "added"),
    queue: ("submitting", "submitted"),
    detach: ("submitting", "submitted"),
    add: ("held", "adding", "added"),
    begin: ("creating", "created"),
}
"""The steps of what each kind of request stores."""

DEATHS = [(ask, step) for ask, steps in STORING.items() for step in (*KEYED_STEPS, *steps)]


async def outlived(ask: Ask, client: AsyncOpenAI, asking: Asking) -> str:
    """The answer to somebody who lives, as soon as nobody who died holds its conversation."""
    return await until(lambda: ask(client, asking), SECONDS, passing=openai.BadRequestError)


async def repeated(ask: Ask, client: AsyncOpenAI, asking: Asking) -> str:
    """The one id that everybody is told who asks again."""
    ids = {*await asyncio.gather(*(outlived(ask, client, asking) for _ in range(REPEATS))), *asking.seen}
    (id,) = ids
    return id


async def check(ask: Ask, client: AsyncOpenAI, asking: Asking, id: str) -> None:
    """Check that the response that was asked for is there, once and whole."""
    if ask in (plain, stream, join, queue, detach):
        response = await until(
            lambda: client.responses.retrieve(id), SECONDS, wanted=lambda found: found.status == "completed"
        )
        assert response.output_text == ANSWERED[1]
    if ask in (join, add):
        assert await said(client, asking.conversation) == [NAMED, ASKED, *([ANSWERED] if ask is join else [])]
    if ask is begin:
        assert await said(client, id) == [ASKED]


async def asked_in(client: AsyncOpenAI, ask: Ask, key: str) -> Asking:
    """A request to come, with a conversation of its own where it needs one."""
    needs = ask in (join, add)
    conversation = (await client.conversations.create(items=[{**ITEM, "content": NAMED[1]}])).id if needs else ""
    return Asking(key, conversation, [])


async def die(stage: Stage, death: tuple[Ask, str], soon: float = 0.0) -> None:
    """Ask an API that dies at a step, or soon after; those who ask another one again are all told the same id, and
    nothing else is there.
    """
    ask, step = death
    settings = stage.settings()
    async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.client() as client:
        asking = await asked_in(client, ask, f"{ask.__name__} {step}")
        pid, url = await stage.program.serve(changed(settings, embedded_worker=False), step, after=soon)
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as mortal:
            try:
                seen = await ask(mortal, asking)
            except (openai.APIConnectionError, httpx.HTTPError):
                pass  # as it died
            else:
                assert soon or ask is stream, "it answers though it is to die"
                asking.seen.append(seen)
        await until(lambda: dead(pid), SECONDS)
        id = await repeated(ask, client, asking)
        await check(ask, client, asking, id)
    async with Aftermath(settings) as aftermath:
        assert await aftermath.ids() == ({id} if id.startswith("resp_") else set())
        assert await aftermath.left_over(timed=False) == []
        assert await aftermath.complaints() == []


class Call(NamedTuple):
    """A step at which an API dies; how often the tool is called in all, and how the item of the repeat ends."""

    step: str
    calls: int
    status: str
    asks: bool = False


CALLS = [
    Call("beginning a call", 1, "completed"),
    Call("calling", 0, "failed"),
    Call("called", 1, "failed"),
    Call("appending", 1, "failed"),
    Call("using up", 1, "completed", asks=True),
    Call("used up", 0, "failed", asks=True),
    Call("called", 1, "failed", asks=True),
    Call("appending", 1, "failed", asks=True),
]


class Asked(NamedTuple):
    """A request with a key whose response calls a tool, perhaps one that somebody has just approved."""

    key: str
    body: dict[str, Any]

    async def at(self, client: AsyncOpenAI) -> Response:
        return await client.responses.create(model=MODEL, extra_headers={"Idempotency-Key": self.key}, **self.body)


async def asked_for(client: AsyncOpenAI, mcp: McpServer, name: str, *, asks: bool) -> Asked:
    """A request whose response calls the tool with a name, perhaps one that was approved."""
    policy = "always" if asks else "never"
    tool = {"type": "mcp", "server_label": "maths", "server_url": mcp.url, "require_approval": policy}
    tools, words = [tool | {"allowed_tools": ["send_mail"]}], f"Call the tool send_mail to {name}"
    if not asks:
        return Asked(name, {"tools": tools, "input": words})
    first: Any = await client.responses.create(model=MODEL, input=words, tools=tools)  # type: ignore[call-overload]
    approved = {"type": "mcp_approval_response", "approval_request_id": first.output[-1].id, "approve": True}
    return Asked(name, {"tools": tools, "input": [approved], "previous_response_id": first.id})


def call_of(response: Response) -> Any:
    (call,) = [item for item in response.output if item.type == "mcp_call"]
    return call


async def die_around_a_call(stage: Stage, death: Call) -> None:
    """Ask an API that dies at a step, and then one that lives."""
    mcp = await stage.shared(mcp_server)
    mcp.let_go()
    settings = stage.settings(mcp_allow=mcp.url)
    name = f"{'approved ' if death.asks else ''}{death.step}".replace(" ", "-") + "-with-a-key"
    async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.client() as client:
        asked = await asked_for(client, mcp, name, asks=death.asks)
        pid, url = await stage.program.serve(changed(settings, embedded_worker=False), death.step)
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as mortal:
            with pytest.raises(openai.APIConnectionError):
                await asked.at(mortal)
        await until(lambda: dead(pid), SECONDS)
        again, once_more = await asked.at(client), await asked.at(client)
    assert (again.status, call_of(again).status) == ("completed", death.status)
    assert ("not known" in str(call_of(again).error)) is (death.status == "failed")
    assert once_more.id == again.id
    assert mcp.began("send_mail", name) == death.calls


REQUESTS = Scenario(die, DEATHS, pushed=(plain, "appended"), soon_turns=4)
AROUND_CALLS = Scenario(die_around_a_call, CALLS, pushed=CALLS[2])
