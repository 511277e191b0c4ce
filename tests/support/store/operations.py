"""Every operation of the store by name, to be tried against servers that are well, ill or far away."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from store.errors import LeaseLost, NotCancellable, NotFound, NotSteerable, ParentNotFound, StoreUnavailable
from store.history.approvals import StoredApprovals
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.history.idempotency import Keyed, KeyedRequests
from store.history.listing import TreeListing
from store.history.records import RecordKind, TenantRecords
from store.history.tree_turns import shown_of, turns_of, under_way
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from store.jobs.model import Job, Lease, Steer
from store.keys import CONVERSATION_MARK, conversation_id
from store.layout import shared_secret
from store.limits import Check, Limits
from store.spending import Spending
from store.turn import PICTURE_DIGEST_BYTES, Expense, Status
from tests.support.store.sample import TENANT, turn
from tests.support.store.work import submit, successor

CONTAINERS = RecordKind("containers", "cntr_", b"contnr".hex(), most=128, kept_ms=86_400_000)
LOST = "0" * 24
"""The token of a lease that nobody holds."""

AT_ONCE = 16
"""How many operations are tried at once where each has to wait."""

Deed = Callable[[ConversationHistoryStore, str], Awaitable[Any]]
"""Something that is done to a store, with the id of a turn that it may have."""

HISTORY_OPERATIONS: dict[str, Deed] = {
    "chain": lambda store, id: store.chain(TENANT, id),
    "pin": lambda store, id: store.pin(TENANT, id, store.token()),
    "append": lambda store, id: store.append(TENANT, turn(store.new_id(id), id)),
    "recognise": lambda store, id: store.recognise(TENANT, "key", [bytes(16)], forks=True),
    "unpin": lambda store, id: store.unpin(TENANT, id, "pin"),
    "get": lambda store, id: store.get(TENANT, id),
    "find": lambda store, id: store.find(TENANT, id),
    "items": lambda store, id: store.items(TENANT, [id]),
    "pictures": lambda store, id: store.pictures(TENANT, id, [bytes(PICTURE_DIGEST_BYTES)]),
    "lineage": lambda store, id: store.lineage(TENANT, id),
    "messages": lambda store, id: store.messages(TENANT, id),
    "forget": lambda store, id: store.forget(TENANT, id),
    "redact": lambda store, id: store.redact(TENANT, id, lambda messages, response, items: (messages, b"{}", items)),
    "forget_tree": lambda store, id: store.forget_tree(TENANT, id),
    "sweep": lambda store, id: store.sweep(),
    "check": lambda store, id: store.check(),
    "now": lambda store, id: store.now(),
    "cut_time": lambda store, id: store.cut_time(),
    "prove": lambda store, id: store.prove(id),
    "evicts": lambda store, id: store.evicts(),
}

KEYED_OPERATIONS: dict[str, Callable[[KeyedRequests, Keyed, str], Awaitable[Any]]] = {
    "take": lambda them, request, digits: them.take(request, LOST),
    "name": lambda them, request, digits: them.name(request, LOST, digits, kept=True),
    "renew": lambda them, request, digits: them.renew(request, LOST),
    "end": lambda them, request, digits: them.end(request, LOST, made=True),
    "is_stored": lambda them, request, digits: them.is_stored(TENANT, digits),
}

JOB_OPERATIONS: dict[str, Callable[[Jobs, str], Awaitable[Any]]] = {
    "submit": lambda jobs, id: submit(jobs, parent=id),
    "claim": lambda jobs, id: jobs.claim(shard(jobs, id), 1),
    "spec": lambda jobs, id: jobs.spec(Lease(TENANT, id, LOST)),
    "write": lambda jobs, id: jobs.write(Lease(TENANT, id, LOST), LogEntry(5, b"more"), snapshot=b"{}"),
    "renew": lambda jobs, id: jobs.renew([Lease(TENANT, id, LOST)]),
    "hand_back": lambda jobs, id: jobs.hand_back(Lease(TENANT, id, LOST), failed=False),
    "cancel": lambda jobs, id: jobs.cancel(TENANT, id),
    "steer": lambda jobs, id: jobs.steer(TENANT, id, Steer("steer_1", b"more")),
    "steers": lambda jobs, id: jobs.steers(Lease(TENANT, id, LOST)),
    "succeed": lambda jobs, id: jobs.succeed(
        Lease(TENANT, id, LOST), turn(id, text="new"), LogEntry(9, b"the end"), successor(jobs, id), steers=()
    ),
    "finish": lambda jobs, id: jobs.finish(Lease(TENANT, id, LOST), turn(id, text="new"), LogEntry(9, b"the end")),
    "snapshot": lambda jobs, id: jobs.snapshot(TENANT, id),
    "expire_logs": lambda jobs, id: jobs.expire_logs(),
    "queue": lambda jobs, id: jobs.queue(shard(jobs, id)),
}


CONVERSATION_OPERATIONS: dict[str, Callable[[Conversations, str, str], Awaitable[Any]]] = {
    "create": lambda them, id, held: them.create(TENANT, id, turn(them.new_turn_id(id), text="first"), b"{}"),
    "advance": lambda them, id, held: them.advance(TENANT, id, turn(them.new_turn_id(id), text="next"), hold=held),
    "get": lambda them, id, held: them.get(TENANT, id),
    "amend": lambda them, id, held: them.amend(TENANT, id, b"{}"),
    "delete": lambda them, id, held: them.delete(TENANT, id),
    "hold": lambda them, id, held: them.hold(TENANT, id, held, 1.0),
    "chain": lambda them, id, held: them.chain(TENANT, id),
    "release": lambda them, id, held: them.release(TENANT, id, held),
    "lineage": lambda them, id, held: them.lineage(TENANT, id),
    "branch": lambda them, id, held: them.branch(TENANT, id, held),
    "listing": lambda them, id, held: them.listing(TENANT).some(10),
}

SPENT = Expense("key_1", "gpt-oss-20b", 10, 4, 5, 2)


def shard(jobs: Jobs, id: str) -> int:
    """The shard of an id."""
    return jobs.shard_of(Lease(TENANT, id, LOST))


async def _tried(name: str, store: ConversationHistoryStore, id: str) -> None:
    """Try an operation of jobs on a turn that is none, whose lease nobody holds."""
    with suppress(LeaseLost, NotCancellable, NotSteerable):
        await JOB_OPERATIONS[name](Jobs(store), id)


async def _tried_on_a_conversation(name: str, store: ConversationHistoryStore, id: str) -> None:
    """Try an operation of conversations on one that there isn't, in the shard of a turn."""
    digits = store.ids.new(id.removeprefix("resp_"), mark=CONVERSATION_MARK)
    with suppress(NotFound, ParentNotFound):
        await CONVERSATION_OPERATIONS[name](Conversations(store), conversation_id(digits), LOST)


async def a_whole_life(store: ConversationHistoryStore, parent: str) -> None:
    """Every operation of jobs, on two that are ended, one of them by cancelling."""
    jobs = Jobs(store)
    one, two = await submit(jobs, parent=parent), await submit(jobs, parent=parent)
    own = shard(jobs, one)

    async def claim() -> list[Job]:
        """These two, beside which jobs that were only submitted may wait in their shard."""
        return [job for job in (await jobs.claim(own, 9)).jobs if job.lease.id in (one, two)]

    for job in await claim():
        await jobs.write(job.lease, LogEntry(5, b"more"), snapshot=b"{}")
        assert (await jobs.renew([job.lease])).lost == []
        await jobs.hand_back(job.lease, failed=False)
    cancelled = await jobs.cancel(TENANT, two)
    assert cancelled is not None
    for job in (*await claim(), cancelled):
        assert await jobs.snapshot(TENANT, job.lease.id) == (5, b"{}")
        status = Status.CANCELLED if job is cancelled else Status.COMPLETED
        done = turn(job.lease.id, status=status)
        await jobs.finish(job.lease, done, LogEntry(9, b"the end"), announced=True)
    assert (await jobs.queue(own)).log_bytes > 0
    await jobs.expire_logs()
    await store.forget(TENANT, one)
    await go_on(jobs, parent)


async def go_on(jobs: Jobs, parent: str) -> None:
    """A job that is steered, and the one that goes on from it."""
    id = await submit(jobs, parent=parent, steerable=True)
    said = Steer("steer_1", b"more")
    await jobs.steer(TENANT, id, said)
    own = shard(jobs, id)
    (job,) = [job for job in (await jobs.claim(own, 9)).jobs if job.lease.id == id]
    assert await jobs.steers(job.lease) == [said]
    next_one = successor(jobs, id)
    done = turn(id, status=Status.INCOMPLETE)
    await jobs.succeed(job.lease, done, LogEntry(9, b"the end"), next_one, steers=[said])
    (job,) = [job for job in (await jobs.claim(own, 9)).jobs if job.lease.id == next_one.turn.id]
    await jobs.finish(job.lease, turn(job.lease.id), LogEntry(9, b"the end"))


async def _tried_on_a_keyed_request(name: str, store: ConversationHistoryStore, id: str) -> None:
    """Try an operation of keyed requests on one."""
    them = KeyedRequests(store)
    request = await them.request(TENANT, "/v1/responses", b"key", b"{}")
    await KEYED_OPERATIONS[name](them, request, id.removeprefix("resp_"))


async def _tried_on_a_tree(store: ConversationHistoryStore, id: str) -> None:
    """Read the tree of a turn, and what is shown of its turns."""
    tree = await turns_of(store, TENANT, id)
    assert [each async for each in shown_of(store, TENANT, {node.digits: node.size for node in tree.nodes})]


OPERATIONS: dict[str, Deed] = {
    **HISTORY_OPERATIONS,
    **{name: partial(_tried, name) for name in JOB_OPERATIONS},
    **{f"conversation {name}": partial(_tried_on_a_conversation, name) for name in CONVERSATION_OPERATIONS},
    **{f"keyed {name}": partial(_tried_on_a_keyed_request, name) for name in KEYED_OPERATIONS},
    "approval ask": lambda store, id: StoredApprovals(store).ask(TENANT, id, {0: "00ff"}),
    "approval look": lambda store, id: StoredApprovals(store).look(TENANT, id, 0, "00ff"),
    "approval use_up": lambda store, id: StoredApprovals(store).use_up(TENANT, id, 0, "00ff", by=id, run="one"),
    "container keep": lambda store, id: TenantRecords(store, CONTAINERS).keep(
        TENANT, TenantRecords(store, CONTAINERS).new_id(TENANT), b"record"
    ),
    "container get": lambda store, id: TenantRecords(store, CONTAINERS).get(
        TENANT, TenantRecords(store, CONTAINERS).new_id(TENANT)
    ),
    "container all": lambda store, id: TenantRecords(store, CONTAINERS).all(TENANT),
    "container drop": lambda store, id: TenantRecords(store, CONTAINERS).drop(
        TENANT, TenantRecords(store, CONTAINERS).new_id(TENANT)
    ),
    "limits admit": lambda store, id: Limits(store, held_seconds=60, usual_tokens=100).admit(
        TENANT, store.new_id(id), [Check("all", "requests", "minute", 9)], reads=1, writes=1
    ),
    "spending count": lambda store, id: Spending(store).count(TENANT, store.new_id(id), SPENT),
    "spending told": lambda store, id: Spending(store).sums(0, 0, 10),
    "secret": lambda store, id: shared_secret(store),
    "trees": lambda store, id: TreeListing(store, TENANT).some(10),
    "turns of a tree": _tried_on_a_tree,
    "what is under way": lambda store, id: under_way(store, TENANT, 10),
    "a whole life": a_whole_life,
}
"""Every operation, each of which may be the first that finds out how a server is."""


async def check_refused_in_time(
    opened: Callable[[], Awaitable[ConversationHistoryStore]], id: str, *, hangs: int | None, seconds: float, words: str
) -> None:
    """Try every operation, some at once and each on a store of its own, while the process `hangs` stands still if there
    is one: within so many seconds each is refused with these words.
    """
    for start in range(0, len(OPERATIONS), AT_ONCE):
        tried = {name: await opened() for name in [*OPERATIONS][start : start + AT_ONCE]}
        if hangs is not None:
            os.kill(hangs, signal.SIGSTOP)
        began = time.monotonic()
        try:
            found = await asyncio.gather(
                *(OPERATIONS[name](store, id) for name, store in tried.items()), return_exceptions=True
            )
            assert time.monotonic() - began < seconds, [*tried]
        finally:
            if hangs is not None:
                os.kill(hangs, signal.SIGCONT)
        for (name, store), error in zip(tried.items(), found, strict=True):
            assert isinstance(error, StoreUnavailable), (name, error)
            assert words in str(error), name
            await store.close()
