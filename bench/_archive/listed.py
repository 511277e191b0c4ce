"""Listed: pages of the catalogue of a million conversations, and searches in those of 100,000.

The rows are those of the service, with words as a language has them: few that all say, many that few say. Half of them
are another tenant's.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench._archive.opened import Bench
from bench._told import Target, table
from store.catalogue.rows import Catalogue, CatalogueRow, fact_of
from store.catalogue.sqlite import SqliteCatalogue
from store.history.elsewhere import KeptQuery
from store.keys import HEX_DIGITS

SEARCHED, LISTED, QUICK = 100_000, 1_000_000, 2_000
PAGE, ROUNDS, AT_ONCE = 50, 9, 256
PAGE_SECONDS, SEARCH_SECONDS = 0.05, 0.2
"""The most that a page and a search may take at the median."""

WORDS = 12
SYLLABLES = ("ku", "ber", "ne", "tes", "lan", "mi", "so", "run", "ga", "pin", "dor", "fa")
TENANTS = ("default", "globex")
SHOWN_BYTES = 600


@dataclass(frozen=True)
class Listed:
    """Seconds for each question, by its words, and how many rows were made a second."""

    seconds: dict[str, Sequence[float]]
    made: dict[int, float]

    def targets(self) -> list[Target]:
        """The targets."""
        limits = {name: PAGE_SECONDS if name.startswith("page") else SEARCH_SECONDS for name in self.seconds}
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
        catalogue, chance = SqliteCatalogue(Path(folder) / "catalogue.db", 60.0), random.Random(1)
        words = ["".join(chance.choices(SYLLABLES, k=3)) for _ in range(5_000)]
        first, last = bench.few(SEARCHED, QUICK), bench.few(LISTED, 2 * QUICK)
        made[first] = await fill(bench, catalogue, words, range(first))
        looked = {"a word of all": [words[0]], "two words": words[3:5], "a rare word": [words[2_000]]}
        for name, asked in looked.items():
            query = KeptQuery(PAGE, words=asked)
            seconds[f"search for {name}"] = await timed(lambda query=query: catalogue.find(TENANTS[0], query))
        made[last] = await fill(bench, catalogue, words, range(first, last))
        middle = KeptQuery(PAGE, before=(last // 2, "~"))
        for name, query in {"page, the first": KeptQuery(PAGE), "page, amid all": middle}.items():
            seconds[name] = await timed(lambda query=query: catalogue.find(TENANTS[0], query))
        await catalogue.close()
    return Listed(seconds, made)


async def fill(bench: Bench, catalogue: Catalogue, words: Sequence[str], numbers: range) -> float:
    """Make rows with these numbers; how many a second."""
    chance, weights = random.Random(numbers.start), [1 / (place + 1) for place in range(len(words))]
    began = time.perf_counter()

    async def add(number: int) -> None:
        said = " ".join(chance.choices(words, weights, k=WORDS))
        digits, tenant = f"{number:0{HEX_DIGITS}x}", TENANTS[number % 2]
        row = CatalogueRow(number, digits, digits, bytes(SHOWN_BYTES), [fact_of("status", "completed")], said)
        assert await catalogue.put(tenant, digits[-20:], row, "")

    for at in bench.progress.track(range(numbers.start, numbers.stop, AT_ONCE), description="rows that are made"):
        await asyncio.gather(*map(add, range(at, min(at + AT_ONCE, numbers.stop))))
    return len(numbers) / (time.perf_counter() - began)


async def timed(ask: Callable[[], Awaitable[Sequence[object]]]) -> list[float]:
    """Seconds that a question takes, of some rounds."""
    found: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await ask()
        found.append(time.perf_counter() - began)
    return found
