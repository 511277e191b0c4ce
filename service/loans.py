"""Loans: what a task takes of the store for a while and gives back: a pin, a hold, a lease, a reservation.

    on_loan(take, give_back):  take ─▶ the block ─▶ give_back
                                 └─ cancelled, or no reply ─▶ give_back ─▶ give_back, once nothing is carried out late

A borrower chooses the name of a loan before it asks: a token, or an id. So a loan can be given back though nobody
knows whether it was taken, and to give back one that is over changes nothing. Giving back is a task of its own, which
nobody cancels; it goes on while the store is away. A script that takes has a moment after which it takes nothing
(`not_after`), so a call that its task gave up is never carried out behind the second try. Never take from the store for
a while in another way.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

from service.backoff import Backoff
from service.logs import event
from store.errors import NotFound, StoreError, StoreUnavailable

T = TypeVar("T")

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 10_000
"""How many loans a process gives back at once. Others are left to end by themselves, as each does."""

PATIENCE_SECONDS = 60.0
"""How long giving one back is tried while the store is away: longer than most loans last by themselves."""

CLOSE_SECONDS = 5.0

AWAY = Backoff(first=0.1, most=2.0)
"""The pauses in seconds while the store is away."""

GiveBack = Callable[[], Awaitable[object]]
"""Gives one loan back, or several; harmless to repeat. Raises StoreUnavailable where it has to be tried again."""


class Loan(Generic[T]):
    """A loan, with the value that was taken."""

    over = False
    """Whether somebody else has it by now, or gave it back."""

    def __init__(self, taken: T) -> None:
        self.taken = taken


class Loans:
    def __init__(self, late_seconds: float, most: int = MOST_AT_ONCE) -> None:
        """After `late_seconds` the store carries nothing out any more that it was asked for."""
        self._late_seconds = late_seconds
        self._most = most
        self._returning: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    @asynccontextmanager
    async def on_loan(self, take: Callable[[], Awaitable[T]], give_back: GiveBack) -> AsyncGenerator[Loan[T]]:
        """A loan of the value that `take()` returns, until the end of the block. Raises the errors of `take`."""
        try:
            loan = Loan(await take())
        except BaseException as error:
            refused = isinstance(error, StoreError) and not isinstance(error, StoreUnavailable)
            self.give_back(give_back, doubtful=not refused)  # other errors may say that its time ran out
            raise
        try:
            yield loan
        finally:
            if not loan.over:
                await self.give_back_now(give_back)

    async def give_back_now(self, give_back: GiveBack) -> None:
        """Give a loan back; return once that was tried. A caller that is cancelled meanwhile needn't care."""
        tried = asyncio.Event()
        if self.give_back(give_back, tried=tried):
            await tried.wait()

    def give_back(
        self, give_back: GiveBack, *, doubtful: bool = False, later: bool = False, tried: asyncio.Event | None = None
    ) -> bool:
        """Have a loan given back; False where too many are. One is `doubtful` where nobody knows whether it was taken:
        it may yet be. With `later` it is given back once that is known alone. `tried` is set once it was tried. Never
        blocks.
        """
        if len(self._returning) >= self._most:
            event(logger, logging.WARNING, "a loan is left to expire", reason=f"{self._most} are given back already")
            return False
        task = asyncio.create_task(self._give_back(give_back, doubtful, later, tried or asyncio.Event()))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)
        return True

    async def _give_back(self, give_back: GiveBack, doubtful: bool, later: bool, tried: asyncio.Event) -> None:
        clock, failures = asyncio.get_running_loop().time, 0
        deadline = clock() + PATIENCE_SECONDS
        if later and await self._rest(self._late_seconds):
            return  # this process ends too early to know; it ends by itself
        while True:
            try:
                await give_back()
                if not doubtful:
                    return
                doubtful, pause = False, self._late_seconds
            except StoreUnavailable as error:
                failures += 1
                pause = AWAY.seconds(failures)
                if clock() + pause > deadline or self._closing.is_set():
                    event(logger, logging.WARNING, "a loan is left to expire", reason=str(error))
                    return
            except NotFound:  # what it was of is gone, and the loan with it
                return
            except StoreError as error:
                event(logger, logging.WARNING, "a loan is left to expire", reason=str(error))
                return
            finally:
                tried.set()
            await self._rest(pause)

    async def _rest(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        return self._closing.is_set()

    async def close(self) -> None:
        self._closing.set()
        if self._returning:
            await asyncio.wait(self._returning, timeout=CLOSE_SECONDS)


async def renew_for_ever(renew: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Renew leases every so many seconds, until cancelled. The next renewal may make up for one that fails."""
    while True:
        await asyncio.sleep(seconds)
        with suppress(StoreError):
            await renew()
