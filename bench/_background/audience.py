"""Many followers in a process of their own: each follows one response, and notes how late events come.

Each delta is the time at which its append began, by the clock of time.monotonic, which all processes of a machine
share. Nothing is done with what comes but to find that time. Never let this process do anything else.
"""

import asyncio
import re
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

import uvloop

from bench._background.processes import WAIT_SECONDS, Follower, until
from service.commands.serve import allow_files

AT_ONCE = 100
"""How many connect at the same time."""

_STAMP = re.compile(rb'"delta":"(\d+\.\d+)"')

Lags = list[float]


class Audience:
    """Followers in another process; a context manager."""

    def __init__(self, port: int) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(port, theirs), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pipe.send(None)
        self._process.join(WAIT_SECONDS)
        self._process.kill()

    async def follow(self, ids: Sequence[str]) -> None:
        """Follow these responses too; returns when all have their first events."""
        await self._asked(list(ids))

    async def lags(self, count: int) -> Lags:
        """How late the next `count` events came, in seconds, once they are here."""
        return await self._asked(count)

    async def _asked(self, what: object) -> Any:
        self._pipe.send(what)
        answer = await asyncio.to_thread(self._pipe.recv)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _run(port: int, pipe: Connection) -> None:
    allow_files(4096)
    uvloop.run(_serve(port, pipe))


async def _serve(port: int, pipe: Connection) -> None:
    """Do what is asked, until nothing is."""
    lags, followers = Lags(), list[Follower]()

    def note(now: float, data: bytes) -> None:
        lags.extend(now - float(stamp) for stamp in _STAMP.findall(data))

    async def follow(id: str) -> None:
        follower = Follower(note)
        await follower.follow(port, id)
        await asyncio.wait_for(follower.begun, WAIT_SECONDS)
        followers.append(follower)

    while (asked := await asyncio.to_thread(pipe.recv)) is not None:
        try:
            if isinstance(asked, list):
                for start in range(0, len(asked), AT_ONCE):
                    await asyncio.gather(*map(follow, asked[start : start + AT_ONCE]))
                pipe.send(None)
            else:
                await until(lambda count=asked: len(lags) >= count, "events")
                pipe.send(lags[:asked])
                del lags[:asked]
        except Exception as failure:
            pipe.send(RuntimeError(f"{failure!r}; {len(lags)} events so far"))
    for follower in followers:
        follower.close()
