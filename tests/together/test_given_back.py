"""Whatever a request took of the store it gives back, wherever it is cancelled: at each of its awaits, one by one."""

import asyncio
import json
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, cast

import httpx
import pytest
from redis.asyncio import Redis
from websockets.exceptions import ConnectionClosed

from service.process import Settings, load_settings
from store.redis.connection import connect
from tests.support.service.background import changed
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.sockets import socket
from tests.support.waiting import until

When = Literal["asked", "answered", "twice"]
"""Whether a task is cancelled while it waits, or once it has its answer and hasn't seen it; or twice, at its next await
too, as by a server that has no patience any more."""


class Trap:
    """Cancels what runs in it at its await number `at`, once; None at none."""

    def __init__(self, tasks: tuple[str, ...], at: int | None, when: When = "asked") -> None:
        """`tasks` are the qualified names of the coroutines that it is put around."""
        self.places: list[str] = []
        self._tasks = tasks
        self._at = at
        self._when = when

    def install(self) -> None:
        """Put it around the tasks that this loop makes from now on."""
        asyncio.get_running_loop().set_task_factory(self._task)

    def remove(self) -> None:
        asyncio.get_running_loop().set_task_factory(None)

    def _task(self, loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
        if coro.__qualname__ in self._tasks:
            coro = self._within(coro)
        return asyncio.Task(coro, loop=loop, **more)

    @types.coroutine
    def _within(self, coro: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        answer: Any = None
        error: BaseException | None = None
        while True:
            try:
                waited = coro.send(answer) if error is None else coro.throw(error)
            except StopIteration as end:
                return end.value
            self._note(coro, waited)
            answer = error = None
            try:
                answer = yield waited
            except BaseException as thrown:
                error = thrown

    def _note(self, coro: Any, waited: Any) -> None:
        self.places.append(_place(coro))
        if self._at is None or len(self.places) - 1 - self._at not in ((0, 1) if self._when == "twice" else (0,)):
            return
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        if self._when != "answered" or waited is None:
            asyncio.get_running_loop().call_soon(task.cancel)
        else:
            waited.add_done_callback(lambda _: task.cancel())  # ahead of the task's own


def _place(coro: Any) -> str:
    """The innermost frames of our own in which a coroutine waits."""
    frames: list[str] = []
    while coro is not None:
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None) or getattr(coro, "ag_frame", None)
        if frame is not None and "site-packages" not in frame.f_code.co_filename:
            frames.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        waits = getattr(coro, "cr_await", None) or getattr(coro, "gi_yieldfrom", None)
        coro = waits if waits is not None else getattr(coro, "ag_await", None)
    return " ".join(frames[-4:])


TENANT = "acme"
KEY = "acme-key-0123456789abcdefghij"
LIMITS = "max_parallel_responses=50,max_tokens_per_1_month=100000000"
HEADERS = {"authorization": f"Bearer {KEY}"}
TASKS = ("RequestResponseCycle.run_asgi", "EventStream._answer", "Connection._work")
"""The tasks of a request over HTTP, and of a lane of a WebSocket."""

MOST_AWAITS = 300
SECONDS = 10.0
"""Within which what was taken has to be given back: far below any lease."""


async def held(redis: Redis, prefix: str) -> list[str]:
    """What the store has of holds, pins, reservations and keyed requests under way; that of queued jobs is theirs."""
    seconds, micros = await redis.time()
    now_ms, found, jobs = seconds * 1000 + micros // 1000, list[str](), set[str]()
    async for name in redis.scan_iter(match=f"{prefix}:*", count=1000):
        _, _, *kind = name.decode().removeprefix(prefix).split(":")
        if kind[2:3] == ["job"]:
            jobs.add(kind[-1])
        elif "pins" in kind or "runs" in kind or kind[0] == "parallel":
            found += [f"{kind[-2]} {member.decode()}" for member in await redis.zrangebyscore(name, now_ms, "+inf")]
        elif kind[0] == "reserved":
            found += [f"reserved {field.decode()}" for field in await redis.hkeys(name) if field != b"mean"]
        elif kind[0] == "keyed":
            records = [json.loads(record) for record in (await redis.hvals(name))]
            found += [f"keyed {each}" for each in records if not each.get("ended") and each["lease"] > now_ms]
    return [each for each in found if each.split()[-1] not in jobs]


@pytest.fixture
async def inside(settings: Settings) -> AsyncIterator[tuple[Inside, Settings]]:
    """A service with keys and limits, and no worker: what is queued stays so."""
    made = load_settings(redis_url=settings.redis_url, api_keys=f"{TENANT}:{KEY}", tenant_limits=LIMITS)
    keys = {"api_keys": made.api_keys, "tenant_limits": made.tenant_limits}
    limited = changed(settings, embedded_worker=False, store_timeout_seconds=1.0, **keys)
    async with serving(limited, scripted([answer("Yes.")])) as running:
        yield running, limited


async def posted(inside: Inside, path: str = "/v1/responses", key: str = "", **body: Any) -> Any:
    headers = HEADERS | ({"idempotency-key": key} if key else {})
    async with inside.http() as http:
        return await http.post(path, json=body, headers=headers)


async def made(inside: Inside, path: str = "/v1/responses", **body: Any) -> str:
    answer = await until(lambda: posted(inside, path, **body), wanted=lambda answer: answer.status_code == 200)
    return answer.json()["id"]


async def over_http(inside: Inside, parent: str, conversation: str, name: str, number: int) -> None:
    kind: dict[str, Any] = {
        "continued": {"previous_response_id": parent},
        "in a conversation, with a key": {"conversation": conversation},
        "a stream": {"previous_response_id": parent, "stream": True},
        "in the background": {"conversation": conversation, "background": True},
    }[name]
    key = f"{name}-{number}" if "key" in name else ""
    with suppress(httpx.HTTPError):
        await posted(inside, key=key, model=MODEL, input="Hello", **kind)


async def over_a_socket(inside: Inside, parent: str, conversation: str, name: str, number: int) -> None:
    body = {"previous_response_id": parent} if name == "continued" else {"conversation": conversation}
    with suppress(ConnectionClosed):
        async with socket(inside.url, additional_headers=HEADERS) as connected:
            await connected.ask("Hello", **body)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):  # a lane that was cancelled says nothing
                    await connected.rest()


WAYS: dict[str, tuple[Callable[..., Awaitable[None]], str]] = {
    "http: continued": (over_http, "continued"),
    "http: in a conversation, with a key": (over_http, "in a conversation, with a key"),
    "http: a stream": (over_http, "a stream"),
    "http: in the background": (over_http, "in the background"),
    "socket: continued": (over_a_socket, "continued"),
    "socket: in a conversation": (over_a_socket, "in a conversation"),
}


ON_A_PUSH = ("http: in a conversation, with a key", "socket: continued")
"""The ways that are tried in every run with each kind of cancel; the others with the worst, whose answer is lost."""


@pytest.mark.parametrize(
    ("way", "when"),
    [
        pytest.param(way, when, marks=() if when == "answered" or way in ON_A_PUSH else pytest.mark.full)
        for way in WAYS
        for when in ("asked", "answered", "twice")
    ],
)
async def test_a_request_that_is_cancelled_at_any_await_gives_back_what_it_took(
    inside: tuple[Inside, Settings], way: str, when: When
) -> None:
    (running, settings), (ask, name) = inside, WAYS[way]
    parent = await made(running, model=MODEL, input="Hi")
    async with connect(settings.redis_url) as redis:  # pyright: ignore
        await until(lambda: held(redis, settings.redis_prefix), wanted=lambda found: not found)
        lost: list[str] = []
        for at in range(MOST_AWAITS):
            conversation = await made(running, "/v1/conversations")
            trap = Trap(TASKS, at, when)
            trap.install()
            try:
                await ask(running, parent, conversation, name, at)
            finally:
                trap.remove()
            try:
                await until(lambda: held(redis, settings.redis_prefix), SECONDS, wanted=lambda found: not found)
            except TimeoutError as error:
                lost.append(f"{at} {trap.places[at] if at < len(trap.places) else ''}: {str(error)[-300:]}")
                await redis.delete(
                    *[
                        n
                        async for n in redis.scan_iter(match=f"{settings.redis_prefix}:*")
                        if any(w in n for w in (b":pins:", b":runs:", b"parallel", b"reserved", b"keyed"))
                    ]
                )
            if at >= len(trap.places):
                break
        print(way, when, len(trap.places), "awaits")
        assert not lost, "\n".join(lost)
        assert len(trap.places) < MOST_AWAITS
