"""Reading through: a history asks an archive for turns that have left the store (store/history/elsewhere.py).

Many may ask for the same turn at once, and anybody for one that never was. So one read answers all who ask meanwhile,
and a turn that wasn't found is remembered for a while. A process asks for no more at once than it was told, of which
one tenant has half.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from store.backup.archiving.retrieving import Retriever
from store.backup.archiving.returning import Returner
from store.errors import ArchiveBusy
from store.history.elsewhere import ArchivedTurn, AwayBranches
from store.watcher import Watcher

CONCURRENCY = 32
"""How many turns a process looks for at once."""

UNKNOWN_SECONDS = 10.0
MOST_UNKNOWN = 100_000
"""How long, and for how many turns, a miss is remembered: some 20 MB. With more all are forgotten."""

HIT, MISS, FAILED, REFUSED = "hit", "miss", "failed", "refused"
"""The outcomes of a question."""

T = TypeVar("T")


class Question(NamedTuple):
    """A tenant, and the digits of a turn; whether its remains will do, if it was deleted."""

    tenant: str
    digits: str
    remains: bool = False


async def _is_ready() -> None:
    """Return at once: the archive may be asked."""


def _is_none(digits: str) -> bool:
    """False: any digits may be guessed."""
    return False


class ArchivedTurns:
    """The turns of a store that have left it for an archive. It is the `elsewhere` of a history."""

    def __init__(
        self,
        retriever: Retriever,
        returner: Returner,
        watcher: Watcher,
        *,
        ready: Callable[[], Awaitable[None]] = _is_ready,
        concurrency: int = CONCURRENCY,
        made: Callable[[str], bool] = _is_none,
        unknown_seconds: float = UNKNOWN_SECONDS,
        most_unknown: int = MOST_UNKNOWN,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`ready()` returns once the archive may be asked. `clock()` returns seconds that only grow. A turn that wasn't
        found is not looked for again for `unknown_seconds`. Digits that this store has `made` are an exception: a
        response may be asked for before it has ended, and be archived and evicted at once.
        """
        self._watcher = watcher
        self._retriever, self._returner, self._ready = retriever, returner, ready
        self._concurrency, self._share = concurrency, max(1, concurrency // 2)
        self._made, self._unknown_seconds, self._most_unknown = made, unknown_seconds, most_unknown
        self._clock = clock
        self._asked: Counter[str] = Counter()
        self._under_way: dict[tuple[str, Question], asyncio.Task[Any]] = {}
        self._unknown: dict[Question, float] = {}

    async def find(self, tenant: str, digits: str) -> ArchivedTurn | None:
        """The archived turn; None where it isn't there or has no response."""
        turn = await self._once("find", Question(tenant, digits), self._retriever.found)
        if turn is None or turn.response is None:
            return None
        return ArchivedTurn(turn.status, turn.response, turn.items or b"[]", turn.messages, turn.background)

    async def lineage(self, tenant: str, digits: str) -> Sequence[str] | None:
        """The ids of the turns on the way to a turn, None where the archive has no such turn."""
        way = await self._once("way", Question(tenant, digits), self._retriever.way)
        return None if way is None else [turn.id for turn in way.turns]

    async def away(self, tenant: str, root: str, here: Collection[str], most: int) -> AwayBranches:
        """The branches of a tree that only the archive has."""
        ask = partial(self._retriever.away, here=here, most=most)
        return await self._counted(Question(tenant, root), ask) or AwayBranches()

    async def bring_back(self, tenant: str, digits: str) -> bool:
        """Bring a turn back into the store; False where the archive has no such turn."""
        return bool(await self._once("bring back", Question(tenant, digits), self._brought_back))

    async def bring_remains(self, tenant: str, digits: str) -> bool:
        """Bring a turn back, be it a deleted one that others continue; False where the archive has no such turn."""
        question = Question(tenant, digits, remains=True)
        return bool(await self._once("bring back", question, partial(self._brought_back, remains=True)))

    async def _brought_back(self, tenant: str, digits: str, remains: bool = False) -> bool | None:
        return await self._returner.bring_back(tenant, digits, remains=remains) or None

    async def _once(self, what: str, question: Question, ask: Callable[[str, str], Awaitable[T | None]]) -> T | None:
        """The result of `ask`, shared by all who ask the same meanwhile; None also where it was None a moment ago."""
        if self._is_unknown(question):
            return None
        key = (what, question)
        task = self._under_way.get(key)
        if task is None:
            task = asyncio.create_task(self._counted(question, ask))
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)

    def _ended(self, key: tuple[str, Question], task: asyncio.Task[Any]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # nobody may be left who waits for it

    async def _counted(self, question: Question, ask: Callable[[str, str], Awaitable[T | None]]) -> T | None:
        """Ask, where there is a place for that. Raises ArchiveBusy."""
        outcome = FAILED
        try:
            async with self._place(question.tenant):
                await self._ready()
                found = await ask(question.tenant, question.digits)
            outcome = MISS if found is None else HIT
        except ArchiveBusy:
            outcome = REFUSED
            raise
        finally:
            self._watcher.archive_asked(outcome)
        if found is None and not self._made(question.digits):
            self._note_unknown(question)
        return found

    @asynccontextmanager
    async def _place(self, tenant: str) -> AsyncGenerator[None]:
        if self._asked.total() >= self._concurrency or self._asked[tenant] >= self._share:
            raise ArchiveBusy
        self._asked[tenant] += 1
        try:
            yield
        finally:
            self._asked[tenant] -= 1
            if not self._asked[tenant]:
                del self._asked[tenant]

    def _is_unknown(self, question: Question) -> bool:
        until = self._unknown.get(question)
        if until is None or until > self._clock():
            return until is not None
        del self._unknown[question]
        return False

    def _note_unknown(self, question: Question) -> None:
        if len(self._unknown) >= self._most_unknown:
            self._unknown.clear()
        self._unknown[question] = self._clock() + self._unknown_seconds
