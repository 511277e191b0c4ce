"""Runs of code between a sandbox and a store: what is noted of containers, and what counts where that can't be."""

from typing import Any

import pytest

from service.api.outcome import OUTPUTS, HostedCall
from service.api.tools.callee import Hosted
from service.sandbox.port import FOLDER, Cell, Opened
from service.tools.containers import FRESH_SECONDS, IDLE_MINUTES, Containers
from service.tools.python import PythonRun
from store.errors import StoreUnavailable

TENANT = "ada"
NOW = 1_000_000.0


class Records:
    """A store of containers that may be away, and how often it was asked."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.asked = 0
        self.away = False

    def _ask(self) -> None:
        self.asked += 1
        if self.away:
            raise StoreUnavailable("it is away")

    async def get(self, tenant: str, id: str) -> bytes | None:
        self._ask()
        return self.kept.get(id)

    async def keep(self, tenant: str, id: str, record: bytes, before: bytes = b"") -> bool:
        self._ask()
        self.kept[id] = record
        return True


class Cells:
    """A sandbox whose cells take a while, and what it ran."""

    def __init__(self, clock: "Clock", cell: Cell, records: Records) -> None:
        self.ran: list[str] = []
        self.seconds = 0.0
        self.store_goes = False
        self._clock, self._cell, self._records = clock, cell, records

    async def open(self, session: str, tenant: str, limits: Any, *, lasting: bool) -> Opened:
        return Opened("/elsewhere")

    async def run(self, session: str, call: str, code: str) -> Cell:
        self.ran.append(call)
        self._clock.now += self.seconds
        self._records.away = self.store_goes
        return self._cell


class Clock:
    """A clock that is set."""

    now = NOW

    def __call__(self) -> float:
        return self.now


def stage(cell: Cell) -> tuple[PythonRun, Containers, Cells, Records, Clock]:
    """The calls of a response, over doubles."""
    records, clock = Records(), Clock()
    cells = Cells(clock, cell, records)
    containers: Any = Containers(records, cells, "here", clock)  # type: ignore[arg-type]
    return PythonRun(containers, TENANT), containers, cells, records, clock


def call(number: int = 1) -> HostedCall:
    """A call of code in the container cntr_1."""
    return HostedCall(
        f"ci_{number}", Hosted("cntr_1", "python", kind="python", options="{}"), "6 * 7", include=frozenset({OUTPUTS})
    )


@pytest.mark.parametrize("cell", [Cell("ok", "42\n"), Cell("lost", "The session is lost.\n")])
async def test_what_code_said_counts_though_the_store_is_away(cell: Cell, caplog: pytest.LogCaptureFixture) -> None:
    run, _, cells, _, _ = stage(cell)
    cells.seconds, cells.store_goes = 2 * FRESH_SECONDS, True
    outcome = await run.call(call())

    assert outcome.shown["outputs"] == [{"type": "logs", "logs": cell.logs}]
    assert cell.logs in outcome.told
    assert "was not noted" in caplog.text


async def test_where_the_store_is_away_before_no_code_runs() -> None:
    run, _, cells, records, _ = stage(Cell("ok"))
    records.away = True
    outcome = await run.call(call())

    assert (outcome.status, cells.ran) == ("failed", [])
    assert "was not run" in outcome.told


async def test_calls_that_follow_each_other_look_for_their_container_once() -> None:
    run, containers, cells, records, clock = stage(Cell("ok", "42\n"))
    outcomes = [await run.call(call(number)) for number in range(5)]
    asked = records.asked
    clock.now += FRESH_SECONDS
    await run.call(call(5))

    assert (asked, records.asked) == (2, 4)
    assert len(cells.ran) == 6
    assert [FOLDER in outcome.told for outcome in outcomes] == [True, False, False, False, False]
    record = await containers.find(TENANT, "cntr_1")
    assert record is not None
    assert record.active_at == clock.now


async def test_a_container_was_used_until_its_code_ended() -> None:
    run, containers, cells, _, clock = stage(Cell("ok", "42\n"))
    cells.seconds = IDLE_MINUTES * 60 - 1
    await run.call(call())
    clock.now += 60
    record = await containers.find(TENANT, "cntr_1")

    assert record is not None
    assert containers.lives(record)
