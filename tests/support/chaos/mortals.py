"""The program mortal.py as tests have it: processes that kill themselves at a chosen step, one an order."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from service.process import Settings
from tests.support import ROOT
from tests.support.ports import free_port
from tests.support.waiting import until

SECONDS = 100.0
"""How long a process may take to serve, and to come to its step."""


class Mortals:
    """The program."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self._turn = asyncio.Lock()

    async def begin(
        self,
        settings: Settings,
        step: str = "",
        deed: str = "work",
        about: str = "",
        *,
        after: float = 0.0,
        times: int = 1,
    ) -> int:
        """Begin a process that does a deed and dies at a step of it, or within `after` seconds of that; its id. `about`
        is the id of what the deed is about; it survives the step until it comes to it for the time with the number
        `times`, or to the end of its deed.
        """
        given = {name: getattr(settings, name) for name in settings.model_fields_set}
        order = {"settings": given, "step": step, "deed": deed, "about": about, "after": after, "times": times}
        async with self._turn:
            self._stdin.write(json.dumps(order).encode() + b"\n")
            return int(await self._stdout.readline())

    async def die(self, settings: Settings, step: str, *given: str, **more: Any) -> None:
        """As `begin`, and return once the process is gone."""
        pid = await self.begin(settings, step, *given, **more)
        await until(lambda: dead(pid), SECONDS, f"nobody dies {step}")

    async def serve(self, settings: Settings, step: str, *, after: float = 0.0) -> tuple[int, str]:
        """A process that serves until it comes to a step, and its URL, where it listens by now."""
        port = free_port()
        pid = await self.begin(settings, step, "serve", str(port), after=after)
        await until(lambda: _listens(port), SECONDS, "it doesn't serve", passing=OSError)
        return pid, f"http://127.0.0.1:{port}"


@asynccontextmanager
async def mortals() -> AsyncIterator[Mortals]:
    """The program, until the end of the block; nobody outlives it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.support.chaos.mortal"),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield Mortals(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def dead(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def _listens(port: int) -> bool:
    """Whether somebody does. Raises OSError if not."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    return True
