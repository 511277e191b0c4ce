"""What a claim costs: nothing is handed to nobody, no try is counted that nobody made, and a server that stands still
takes no job from a holder who lives.
"""

import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from store.embedded import EmbeddedServer
from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.model import JobLimits, Priority
from store.redis.connection import connect
from tests.support.store.counted import usage
from tests.support.store.sample import TENANT, turn
from tests.support.store.work import claim, claimed, fall_silent, submit
from tests.support.waiting import until

LEASE_SECONDS = 2.0
TIMEOUT_SECONDS = 1.0


class Pausable:
    """Jobs on a server that can stand still."""

    def __init__(self, server: EmbeddedServer) -> None:
        """It works."""
        self._pid = server.pid
        self.history = ConversationHistoryStore(connect(server.url), timeout_seconds=15.0)
        self.jobs = Jobs(self.history, JobLimits(lease_seconds=LEASE_SECONDS))
        self.hasty = Jobs(ConversationHistoryStore(connect(server.url), timeout_seconds=TIMEOUT_SECONDS))

    def stop(self) -> None:
        """Stand still; what is sent waits in the server's buffer."""
        os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Work again, at first on what was sent meanwhile."""
        os.kill(self._pid, signal.SIGCONT)

    async def stand_still(self, seconds: float) -> None:
        """For so long."""
        began = time.monotonic()
        self.stop()
        await until(lambda: time.monotonic() > began + seconds)
        self.go_on()


@pytest.fixture
async def pausable(tmp_path: Path) -> AsyncIterator[Pausable]:
    """A server of the test's own."""
    with EmbeddedServer(tmp_path) as server:
        patient = ConversationHistoryStore(connect(server.url), timeout_seconds=30.0)
        await patient.check()  # the server knows all scripts from then on, which on a busy machine takes a while
        await patient.close()
        found = Pausable(server)
        try:
            yield found
        finally:
            found.go_on()
            await found.history.close()
            await found.hasty.history.close()


GIVEN_UP: dict[str, Callable[[Pausable], Awaitable[object]]] = {
    "claim": lambda pausable: pausable.hasty.claim(0, 1),
    "submit": lambda pausable: submit(pausable.hasty),
    "append": lambda pausable: pausable.hasty.history.append(TENANT, turn(pausable.history.new_id())),
}


@pytest.mark.parametrize("what", GIVEN_UP)
async def test_what_was_given_up_is_not_done_afterwards(pausable: Pausable, what: str) -> None:
    await submit(pausable.jobs)
    await until(lambda: pausable.hasty.claim(0, 0), wanted=lambda _: True, passing=StoreUnavailable)
    pausable.stop()
    with pytest.raises(StoreUnavailable):
        await GIVEN_UP[what](pausable)
    pausable.go_on()
    queue = await pausable.jobs.queue(0)
    assert (queue.running, sum(queue.waiting)) == (0, 1)
    assert (await usage(pausable.history)).responses == 1


async def test_a_server_that_stands_still_for_longer_than_a_lease_takes_no_job_from_who_lives(
    pausable: Pausable,
) -> None:
    await submit(pausable.jobs)
    job = await claim(pausable.jobs)
    await pausable.jobs.claim(0, 0)
    await pausable.stand_still(1.5 * LEASE_SECONDS)
    found = await pausable.jobs.claim(0, 9)
    assert (found.jobs, found.rescued, found.running) == ([], 0, 1)
    assert (await pausable.jobs.renew([job.lease])).lost == []


async def test_who_died_in_such_a_silence_loses_his_job_half_a_lease_later(pausable: Pausable) -> None:
    await submit(pausable.jobs)
    await claim(pausable.jobs)
    await pausable.jobs.claim(0, 0)
    await pausable.stand_still(1.5 * LEASE_SECONDS)
    await until(lambda: pausable.jobs.claim(0, 0), wanted=lambda found: found.rescued)


async def test_a_lease_that_nobody_was_heard_of_is_short_and_costs_no_try(history: ConversationHistoryStore) -> None:
    jobs = Jobs(history, JobLimits(lease_seconds=600.0, first_seconds=0.01))
    id = await submit(jobs)
    for epoch in range(1, 4):
        (job,) = await until(lambda: taken(jobs))
        assert (job.lease.id, job.epoch, job.tries) == (id, epoch, 1)
    assert (await jobs.renew([job.lease])).lost == []
    assert (await jobs.claim(0, 1)).jobs == []
    await fall_silent(jobs, id)
    assert (await claim(jobs)).tries == 2


async def taken(jobs: Jobs) -> list[object]:
    """What a claim gives."""
    return [*(await jobs.claim(0, 1)).jobs]


async def test_a_claim_takes_from_no_level_behind_the_one_it_names_and_tells_the_first_that_waits(jobs: Jobs) -> None:
    await submit(jobs, "flex", priority=Priority.FLEX)
    await submit(jobs, "default", priority=Priority.DEFAULT)
    found = await jobs.claim(0, 9, Priority.PRIORITY)
    assert (found.jobs, found.first) == ([], Priority.DEFAULT)
    found = await jobs.claim(0, 9, Priority.DEFAULT)
    assert (len(found.jobs), found.running, found.first) == (1, 1, Priority.FLEX)
    assert await claimed(jobs, 9) == ["flex"]
    assert (await jobs.claim(0, 9)).first is None


async def test_a_job_that_is_handed_back_was_tried_no_more_often_for_that(jobs: Jobs) -> None:
    await submit(jobs)
    job = await claim(jobs)
    await jobs.renew([job.lease])
    await jobs.hand_back(job.lease, failed=False)
    assert (await claim(jobs)).tries == job.tries
