"""Cancels a task of the service at one of its awaits: the n-th, before its answer is there or just behind that.

A request's tasks are made by the server, so a factory of tasks puts a trap around them. `places` says where each
await stands, so that a test can name the one at which something was lost.
"""

import asyncio
import types
from collections.abc import Coroutine, Generator
from pathlib import Path
from typing import Any, Literal, cast

When = Literal["asked", "answered", "twice"]
"""Whether a task is cancelled while it waits, or once it has its answer and hasn't seen it; or twice, at its next await
too, as by a server that has no patience any more."""


class Trap:
    """Cancels what runs in it at its await number `at`, once; None at none."""

    def __init__(self, tasks: tuple[str, ...], at: int | None, when: When = "asked") -> None:
        """`tasks` are the qualified names of the coroutines that it is put around."""
        self.places: list[str] = []
        """Where each await stood until now."""
        self._tasks = tasks
        self._at = at
        self._when = when

    def install(self) -> None:
        """Put it around the tasks that this loop makes from now on."""
        asyncio.get_running_loop().set_task_factory(self._task)

    def remove(self) -> None:
        """Put it around no more tasks."""
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
