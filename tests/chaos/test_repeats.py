"""Requests with a key, whose API or store dies at any step of them: whoever asks again gets what is stored once."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from service import app
from service.settings.settings import Settings, load_settings
from store.embedded import EmbeddedServer
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import each_dies, shaky_store
from tests.support.chaos.inside import WatchedEngine, counted
from tests.support.chaos.mortal import KEYED_STEPS, QUESTION
from tests.support.chaos.mortals import Mortals, dead
from tests.support.chaos.storm import STEADY
from tests.support.chaos.watched import watched
from tests.support.service.inside import serving
from tests.support.service.listed import said
from tests.support.service.process import MODEL
from tests.support.waiting import until

TOKENS_PER_SECOND = 400
PATIENT: dict[str, Any] = {"lease_seconds": 30.0, "store_timeout_seconds": 10.0}
"""Nobody who lives gives up on a busy machine."""

REPEATS = 3
"""How many ask again at once."""

SECONDS = 60.0
SOON_SECONDS = 0.03
"""In the long form they die at any moment so long after a step."""

ROUNDS, STORE_ROUNDS = 4, 3
NAMED = ("user", "My name is Ada.")
ASKED = ("user", QUESTION)
ANSWERED = ("assistant", counted(5))
ITEM: Any = {"role": "user", "content": QUESTION}

pytestmark = pytest.mark.timeout(120)


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


async def stream(client: AsyncOpenAI, asking: Asking, **body: Any) -> str:
    create: Any = client.responses.create
    events = await create(model=MODEL, input=QUESTION, stream=True, extra_headers=asking.headers, **body)
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
    add: ("held", "adding", "added"),
    begin: ("creating", "created"),
}
"""The steps of what each kind of request stores."""

DEATHS = [
    *product((plain,), (*KEYED_STEPS, *STORING[plain])),
    *product((queue,), STORING[queue]),
    *product((begin,), STORING[begin]),
    *((stream, "appending"), (join, "added"), (add, "added")),
]
"""Those of the short form: in a conversation the next one waits until nobody holds it, for a lease."""

ALL_DEATHS = [(ask, step) for ask, steps in STORING.items() for step in (*KEYED_STEPS, *steps)]


async def outlived(ask: Ask, client: AsyncOpenAI, asking: Asking) -> str:
    """What somebody who lives is told; as soon as nobody who died holds its conversation."""
    return await until(lambda: ask(client, asking), SECONDS, passing=openai.BadRequestError)


async def repeated(ask: Ask, client: AsyncOpenAI, asking: Asking) -> str:
    """The one id that everybody is told who asks again."""
    ids = {*await asyncio.gather(*(outlived(ask, client, asking) for _ in range(REPEATS))), *asking.seen}
    (id,) = ids
    return id


async def check(ask: Ask, client: AsyncOpenAI, asking: Asking, id: str) -> None:
    """What was asked for is there, once and whole."""
    if ask in (plain, stream, join, queue):
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


async def die(
    mortals: Mortals, doomed: Settings, death: tuple[Ask, str], *, client: AsyncOpenAI, soon: float, told: set[str]
) -> None:
    """Ask an API that dies at a step, or soon after; those who ask another one again are all `told` the same id."""
    ask, step = death
    asking = await asked_in(client, ask, f"{ask.__name__} {step}")
    pid, url = await mortals.serve(doomed, step, after=soon)
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
    told.add(id)


async def nothing_else_is_there(settings: Settings, told: set[str]) -> None:
    """Only the responses whose ids somebody was told are there, and nothing is under way."""
    async with Aftermath(settings) as aftermath:
        assert await aftermath.ids() == {id for id in told if id.startswith("resp_")}
        assert await aftermath.left_over(timed=False) == []
        assert await aftermath.complaints() == []


async def die_everywhere(url: str, prefix: str, deaths: list[tuple[Ask, str]], soon: float = 0.0) -> None:
    """Let an API die at each step, many at once, beside one that lives."""
    doomed = load_settings(redis_url=url, key_prefix=prefix, worker=False, **STEADY)
    settings, told = load_settings(redis_url=url, key_prefix=prefix, **PATIENT), set[str]()
    async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.client() as client:
        await each_dies(deaths, partial(die, client=client, soon=soon, told=told), lambda _: doomed)
    await nothing_else_is_there(settings, told)


async def test_an_api_that_dies_at_any_step_of_a_keyed_request_makes_no_second_response(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "store") as server:
        await die_everywhere(server.url, "steps", DEATHS)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_apis_that_die_soon_after_any_step_of_keyed_requests_make_no_second_response(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "store") as server:
        await die_everywhere(server.url, "steps", ALL_DEATHS)
        for turn in range(ROUNDS):
            await die_everywhere(server.url, f"turn-{turn}", ALL_DEATHS, SOON_SECONDS)


async def lose_the_store(
    folder: Path, monkeypatch: pytest.MonkeyPatch, deaths: list[tuple[Ask, str]], rounds: int
) -> None:
    """Ask while the store is killed at a step, and started again; and once more."""
    async with shaky_store(folder, "always", 7) as outages:
        open_service, told = app.open_service, set[str]()
        monkeypatch.setattr(app, "open_service", lambda *given: watched(open_service(*given), outages.at))
        settings = load_settings(redis_url=outages.url, **PATIENT)
        async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.client() as client:
            for turn, amid, (ask, step) in product(range(rounds), (False, True), deaths):
                asking = await asked_in(client, ask, f"{turn} {amid} {ask.__name__} {step}")
                outages.order(step, amid=amid)
                first = await outlived(ask, client, asking)
                await outages.over()
                assert await repeated(ask, client, asking) == first, (ask.__name__, step, amid)
                await check(ask, client, asking, first)
                told.add(first)
        await nothing_else_is_there(settings, told)


async def test_a_store_that_is_killed_at_any_step_of_a_keyed_request_makes_no_second_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lose_the_store(tmp_path, monkeypatch, [*product((stream,), KEYED_STEPS)], 1)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_a_store_that_is_killed_again_and_again_makes_no_second_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lose_the_store(tmp_path, monkeypatch, ALL_DEATHS, STORE_ROUNDS)
