"""The program mortal.py as tests have it: processes that kill themselves at a chosen step, one an order."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from service.settings.settings import Settings
from tests.support import ROOT


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
    """Whether a process is gone."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
