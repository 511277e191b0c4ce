"""Listed: pages of all that is kept, a million conversations of which 50,000 are in memory, and searches in 100,000 and
in all of them.

The rows are those of the service, with words as a language has them: few that all say, many that few say. Half of them
are another tenant's.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from bench._archive.opened import Bench, opened
from bench._rig import running
from bench._told import Target, table
from service.features.catalogue.describing import KeptNewest, KeptSummary
from service.features.catalogue.excerpts import Excerpt, TurnUsage
from service.features.console.listing import ListPlace, page_of
from service.features.console.trees import TreeFilter
from store.backup.archiving.archived_turns import ArchivedTurns
from store.catalogue.catalogue import Catalogue
from store.catalogue.cataloguing import tree_at
from store.catalogue.rows import CatalogueRow, fact_of
from store.catalogue.sqlite import SqliteCatalogue
from store.history.elsewhere import KeptQuery
from store.history.history import ConversationHistoryStore
from store.history.listing import ScoredDigits
from store.ids import TREE_DIGITS
from store.keys import HEX_DIGITS, SHARD_DIGITS, digits_of, id_of
from store.turn import Status, Turn
from tests.support.archive.opened import Place

SEARCHED, LISTED, HERE, QUICK = 100_000, 1_000_000, 50_000, 2_000
PAGE, ROUNDS, AT_ONCE = 50, 9, 256
PAGE_SECONDS, SEARCH_SECONDS = 0.05, 0.2
"""The most that a page and a search may take at the median."""

WORDS = 12
SYLLABLES = ("ku", "ber", "ne", "tes", "lan", "mi", "so", "run", "ga", "pin", "dor", "fa")
TENANTS = ("default", "globex")
TREE_CHARS = SHARD_DIGITS + TREE_DIGITS
MODEL = "gpt-oss-20b"


@dataclass(frozen=True)
class Listed:
    """Seconds for each question, by its words, and how many rows were made a second."""

    seconds: dict[str, Sequence[float]]
    made: dict[int, float]

    def targets(self) -> list[Target]:
        """The targets; a search in a million has none."""
        limits = {
            name: PAGE_SECONDS if name.startswith("page") else SEARCH_SECONDS
            for name in self.seconds
            if not name.startswith("search in")
        }
        return [Target(f"ms of a {name}", 1e3 * median(self.seconds[name]), 1e3 * limits[name]) for name in limits]

    def lines(self) -> list[str]:
        """The figures for people."""
        rows = [(name, 1e3 * median(found), 1e3 * max(found)) for name, found in self.seconds.items()]
        made = [f"{number:,} rows were made at {a_second:,.0f} a second" for number, a_second in self.made.items()]
        return [*table(("ms", "p50", "most"), rows), *made]


async def measure(bench: Bench) -> Listed:
    """Fill it up to one number and search, then to the other and list."""
    seconds, made = dict[str, Sequence[float]](), dict[int, float]()
    with tempfile.TemporaryDirectory() as folder:
        catalogue = Catalogue(SqliteCatalogue(Path(folder) / "catalogue.db", 60.0))
        chance = random.Random(1)
        words = ["".join(chance.choices(SYLLABLES, k=3)) for _ in range(5_000)]
        first, last = bench.few(SEARCHED, QUICK), bench.few(LISTED, 2 * QUICK)
        made[first] = await fill(bench, catalogue, words, range(first))
        looked = {
            "a word of all": [words[0]],
            "two words": words[3:5],
            "a rare word": [words[2_000]],
            "a letter": ["k"],
        }
        queries = {name: KeptQuery(PAGE, words=asked) for name, asked in looked.items()}
        for name, query in queries.items():
            seconds[f"search for {name}"] = await timed(partial(catalogue.find, TENANTS[0], query))
        made[last] = await fill(bench, catalogue, words, range(first, last))
        for name, query in queries.items():
            seconds[f"search in {last:,} for {name}"] = await timed(partial(catalogue.find, TENANTS[0], query))
        async with AsyncExitStack() as stack:
            redis = stack.enter_context(running(bench.redis))
            there = await stack.enter_async_context(opened(redis, Place("sqlite", f"sqlite://{folder}/archive")))
            there.store.elsewhere = ArchivedTurns(there.store, there.archive, find=catalogue.find)
            middle = await remember(bench, there.store, catalogue, bench.few(HERE, QUICK))
            places = {"of memory": None, "amid memory": middle, "behind it": last // 2}
            for name, used in places.items():
                after = None if used is None else ListPlace(0, ScoredDigits(used, "0" * HEX_DIGITS), (used, "~"))
                ask = partial(page_of, there.store, TENANTS[0], TreeFilter(), "", after, PAGE)
                assert len((await ask()).data) == PAGE
                seconds[f"page {name}"] = await timed(ask)
        await catalogue.close()
    return Listed(seconds, made)


async def fill(bench: Bench, catalogue: Catalogue, words: Sequence[str], numbers: range) -> float:
    """Make rows with these numbers; how many a second."""
    chance, weights = random.Random(numbers.start), [1 / (place + 1) for place in range(len(words))]
    began = time.perf_counter()

    async def add(number: int) -> None:
        said = " ".join(chance.choices(words, weights, k=WORDS))
        digits = f"{number:0{HEX_DIGITS}x}"
        assert await catalogue.put(TENANTS[number % 2], digits[-TREE_CHARS:], row_of(digits, number, said), digits, "")

    for at in bench.progress.track(range(numbers.start, numbers.stop, AT_ONCE), description="rows that are made"):
        await asyncio.gather(*map(add, range(at, min(at + AT_ONCE, numbers.stop))))
    return len(numbers) / (time.perf_counter() - began)


def row_of(digits: str, used: int, said: str) -> CatalogueRow:
    """The row of a conversation with one turn."""
    excerpt = Excerpt(MODEL, TurnUsage(100, 50), {}, said, said)
    newest = KeptNewest(id_of(digits), "completed", used, excerpt)
    shown = msgspec.json.encode(KeptSummary(said, used, 1, None, newest))
    return CatalogueRow(used, digits, digits, shown, [fact_of("status", "completed")], said)


async def remember(bench: Bench, store: ConversationHistoryStore, catalogue: Catalogue, number: int) -> int:
    """Have so many conversations in memory that the catalogue has, too; the use of one in the middle."""
    response = msgspec.json.encode({"model": MODEL, "output": [], "usage": {"input_tokens": 100, "output_tokens": 50}})
    items = msgspec.json.encode([{"role": "user", "content": "words that somebody said"}])
    middle = 0

    async def add() -> None:
        turn = Turn(store.new_id(), None, Status.COMPLETED, (), response, items)
        await store.append(TENANTS[0], turn)
        digits, used = digits_of(turn.id), round(time.time() * 1e6)
        row = row_of(digits, used, "words that somebody said")
        assert await catalogue.put(TENANTS[0], tree_at(digits), row, digits, "")

    for at in bench.progress.track(range(0, number, AT_ONCE), description="conversations in memory"):
        await asyncio.gather(*(add() for _ in range(at, min(at + AT_ONCE, number))))
        middle = middle or (round(time.time() * 1e6) if at >= number // 2 else 0)
    return middle


async def timed(ask: Callable[[], Awaitable[object]]) -> list[float]:
    """Seconds that a question takes, of some rounds."""
    found: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await ask()
        found.append(time.perf_counter() - began)
    return found
