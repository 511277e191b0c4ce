"""Jobs that are added to a conversation: they hold it from their acceptance to their end, whoever works on them."""

import pytest

from store.errors import ConversationHeld, ConversationMoved, ConversationNotFound, NotTerminal, StoreFull
from store.history.caps import Caps
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from tests.support.store.named import begun, tip_of, words
from tests.support.store.sample import TENANT, said, turn
from tests.support.store.work import ACCEPTED, claim, fall_silent, finish, queued

HELD_SECONDS = 60.0


async def queue(jobs: Jobs, conversations: Conversations, id: str, *, fleeting: bool = False) -> str:
    """A job that is added to a conversation; its id."""
    hold = jobs.history.token()
    if not fleeting:
        await conversations.hold(TENANT, id, hold, HELD_SECONDS)
    tip = await tip_of(conversations, id)
    made = jobs.history.new_id(tip)
    await jobs.submit(
        TENANT, queued(made, tip), b"one", ACCEPTED, streams=True, fleeting=fleeting, pin=hold, conversation=id
    )
    return made


async def is_held(conversations: Conversations, id: str) -> bool:
    """Whether somebody holds a conversation, also against whoever adds to it without a hold."""
    tip = await tip_of(conversations, id)
    try:
        await conversations.advance(TENANT, id, turn(conversations.new_turn_id(id), tip, text="no"), hold="another")
    except ConversationMoved:
        with pytest.raises(ConversationHeld):
            await conversations.hold(TENANT, id, "another", 1.0)
        return True
    return False


async def test_a_job_holds_its_conversation_until_its_end_and_joins_it(
    history: ConversationHistoryStore, jobs: Jobs, conversations: Conversations
) -> None:
    id = await begun(conversations, text="hello")
    made = await queue(jobs, conversations, id)
    assert await is_held(conversations, id)
    job = await claim(jobs)
    assert await is_held(conversations, id)
    assert await words(conversations, id) == ["hello"]
    await finish(jobs, job, text="answer")
    assert await words(conversations, id) == ["hello", "answer"]
    assert await tip_of(conversations, id) == made
    await conversations.hold(TENANT, id, "next", 1.0)
    await conversations.release(TENANT, id, "next")


async def test_a_job_whose_worker_dies_or_leaves_goes_on_holding(jobs: Jobs, conversations: Conversations) -> None:
    id = await begun(conversations, text="hello")
    made = await queue(jobs, conversations, id)
    dead = await claim(jobs)
    await fall_silent(jobs, made)
    rescued = await claim(jobs)
    assert rescued.lease != dead.lease
    assert await is_held(conversations, id)
    await jobs.hand_back(rescued.lease, failed=False)
    assert await is_held(conversations, id)
    await finish(jobs, await claim(jobs), text="answer")
    assert await words(conversations, id) == ["hello", "answer"]


async def test_a_job_is_not_accepted_behind_another_or_where_nothing_is(
    history: ConversationHistoryStore, jobs: Jobs, conversations: Conversations
) -> None:
    id = await begun(conversations, text="hello")
    tip = await tip_of(conversations, id)
    await conversations.hold(TENANT, id, "one", HELD_SECONDS)
    late = queued(jobs.history.new_id(tip), tip)
    with pytest.raises(ConversationMoved):
        await jobs.submit(TENANT, late, b"one", ACCEPTED, pin="two", conversation=id)
    await conversations.delete(TENANT, id)
    with pytest.raises(ConversationNotFound):
        await jobs.submit(TENANT, late, b"one", ACCEPTED, pin="one", conversation=id)
    assert (await jobs.claim(0, 1)).jobs == []


async def test_a_job_whose_conversation_is_deleted_is_stored_all_the_same(
    history: ConversationHistoryStore, jobs: Jobs, conversations: Conversations
) -> None:
    id = await begun(conversations, text="hello")
    made = await queue(jobs, conversations, id)
    await conversations.delete(TENANT, id)
    with pytest.raises(NotTerminal):
        await history.forget_tree(TENANT, made)
    job = await claim(jobs)
    done = turn(made, text="answer")
    finished = await jobs.finish(job.lease, done, LogEntry(9, b"end"))
    assert finished.unjoined == "gone"
    assert await said(history, made) == ["hello", "answer"]


async def test_a_conversation_that_a_job_holds_is_not_evicted(jobs: Jobs, conversations: Conversations) -> None:
    history = jobs.history
    id = await begun(conversations, text="hello")
    await queue(jobs, conversations, id)
    history.caps = Caps(responses=5)
    for _ in range(10):
        await history.append(TENANT, turn(history.new_id(), text="x" * 100))
    history.caps = Caps(responses=3)
    with pytest.raises(StoreFull):
        await history.append(TENANT, turn(history.new_id(), text="y"))
    history.caps = Caps()
    await finish(jobs, await claim(jobs), text="answer")
    assert await words(conversations, id) == ["hello", "answer"]


@pytest.mark.parametrize("begins", [False, True])
async def test_what_is_cancelled_joins_with_what_was_said(
    history: ConversationHistoryStore, jobs: Jobs, conversations: Conversations, begins: bool
) -> None:
    id = await begun(conversations, text="hello")
    made = await queue(jobs, conversations, id)
    if begins:
        await claim(jobs)
    job = await jobs.cancel(TENANT, made)
    assert job is not None
    assert await is_held(conversations, id)
    await finish(jobs, job, text="cut")
    assert await words(conversations, id) == ["hello", "cut"]
