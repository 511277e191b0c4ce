"""Processes that die at every step of what they do to a conversation: it goes on within a lease, whole and in order.

What the dead one did is in it once, or it is not; no turn is lost, doubled or out of order. A response in the
background is made by the next worker and joins.
"""

import asyncio
import time
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
from openai import AsyncOpenAI

from service.settings.settings import Settings, load_settings
from store.embedded import EmbeddedServer
from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.inside import WatchedEngine, counted, working
from tests.support.chaos.mortal import QUESTION, STEPS
from tests.support.chaos.mortals import Mortals, dead, mortals
from tests.support.service.inside import serving
from tests.support.service.listed import Said, said
from tests.support.service.process import MODEL
from tests.support.waiting import until

LEASE_SECONDS = 6.0
SLACK_SECONDS = 8.0
"""What an answer takes beside, on cores that others share."""

AT_ONCE = 16
TOKENS_PER_SECOND = 400
SHORT: dict[str, Any] = {
    "lease_seconds": LEASE_SECONDS,
    "store_timeout_seconds": 2.0,
    "demo_tokens_per_second": TOKENS_PER_SECOND,
    "worker": False,
}
"""A lease as short as a store that a busy machine holds up lets it be."""

SOON_SECONDS = 0.03
"""In the long form they die at any moment so long after a step."""

ASKED = ("user", QUESTION)
MADE = [ASKED, ("assistant", counted(5))]
NEXT = [("user", "What is my name?"), ("assistant", "Your name is Ada.")]
NAMED = ("user", "My name is Ada.")

pytestmark = pytest.mark.timeout(120)


class Death(NamedTuple):
    """Where a process dies, and what the conversation has of it when all is over."""

    deed: str
    step: str
    joins: Said = []

    @property
    def is_queued(self) -> bool:
        """Whether a response was accepted in the background, for others to make."""
        return self.deed in ("work", "cancel") or self.step == "submitted"


DEATHS = [
    *(Death("respond", step) for step in ("holding", "held", "held again", "read", "adding")),
    Death("respond", "added", MADE),
    Death("add", "adding"),
    Death("add", "added", [ASKED]),
    *(Death("add what can't be", step) for step in ("releasing", "released")),
    *(Death("omit", step) for step in ("held", "adding", "added")),
    *(Death("fork", step) for step in ("branched", "creating", "created")),
    Death("queue", "submitting"),
    Death("queue", "submitted", MADE),
    *(Death("work", step, MADE) for step in STEPS if not step.startswith("cancel")),
    Death("cancel", "cancelling", MADE),
    Death("cancel", "cancelled", [ASKED]),
]


@pytest.fixture
def settings(tmp_path: Path) -> Any:
    """Makes settings over one store, with an empty part of it for each prefix."""
    with EmbeddedServer(tmp_path / "store") as server:

        def make(prefix: str) -> Settings:
            return load_settings(redis_url=server.url, key_prefix=prefix, **SHORT)

        yield make


async def ask(client: AsyncOpenAI, text: str, id: str) -> bool:
    """A response of a conversation; whether it was free for one."""
    try:
        await client.responses.create(model=MODEL, input=text, conversation=id)
    except openai.BadRequestError as refusal:
        if refusal.code != "conversation_locked":
            raise
        return False
    return True


async def queued(client: AsyncOpenAI, id: str) -> str:
    """A response of a conversation in the background; its id."""
    stream = await client.responses.create(model=MODEL, input=QUESTION, conversation=id, background=True, stream=True)
    async with stream:
        async for event in stream:
            assert event.type == "response.created"
            return event.response.id
    raise AssertionError("no event")


async def die_and_go_on(mortals: Mortals, settings: Settings, death: Death, soon: float) -> None:
    """A conversation with which others go on after a process died within `soon` seconds of a step."""
    aftermath = Aftermath(settings)
    try:
        async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.client() as client:
            id = (await client.conversations.create(items=[{"role": "user", "content": NAMED[1]}])).id
            assert await ask(client, "Count to 2.", id)
            before = await said(client, id)
            response = await queued(client, id) if death.deed in ("work", "cancel") else None
            pid = await mortals.begin(settings, death.step, death.deed, response or id, after=soon)
            await until(lambda: dead(pid), 30, f"it doesn't die {death.step}")
            died = time.monotonic()
            pinned = death.deed == "fork"  # for as long as a response may take
            assert pinned or await aftermath.held_seconds() <= LEASE_SECONDS
            async with working(settings, WatchedEngine(TOKENS_PER_SECOND)):
                await until(
                    lambda: ask(client, NEXT[0][1], id),
                    30,
                    "it is held for ever",
                    passing=openai.APIConnectionError,  # a connection that was idle for as long as they are kept
                )
            seconds = time.monotonic() - died
            check(before, await said(client, id), death, exactly=not soon)
            await until(lambda: settled(aftermath, timed=not pinned), 30, "something is left")
        assert await aftermath.complaints() == []
        await aftermath.check_usage()
        if response is not None:
            await aftermath.check([response])
        assert seconds < LEASE_SECONDS * (2 if death.is_queued else 1) + SLACK_SECONDS
    finally:
        await aftermath.close()


def check(before: Said, after: Said, death: Death, *, exactly: bool) -> None:
    """All that was said before is there, what the dead process did whole or not at all, and what came next."""
    assert before[0] == NAMED
    without_first = death.deed == "omit" and after[0] != NAMED
    assert without_first == (death == Death("omit", "added")) or not exactly
    kept = before[1:] if without_first else before
    assert after[: len(kept)] == kept
    assert after[-1] == ("assistant", NEXT[1][1]) or without_first
    assert after[-2] == NEXT[0]
    between = after[len(kept) : -2]
    assert between in ([death.joins] if exactly else [[], [ASKED], MADE])


async def settled(aftermath: Aftermath, *, timed: bool) -> bool:
    """Whether nothing is under way any more."""
    return await aftermath.left_over(timed=timed) == []


async def die_everywhere(make: Any, prefix: str, soon: float = 0.0) -> None:
    """Let a process die at each step, many at once."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def die(number: int, death: Death) -> None:
        async with turns:
            try:
                await die_and_go_on(program, make(f"{prefix}-{number}"), death, soon)
            except BaseException as error:
                error.add_note(f"{death.deed}: {death.step}")
                raise

    async with mortals() as program, asyncio.TaskGroup() as group:
        for number, death in enumerate(DEATHS):
            group.create_task(die(number, death))


async def test_a_process_that_dies_at_any_step_leaves_a_conversation_that_goes_on(settings: Any) -> None:
    await die_everywhere(settings, "step")


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_processes_that_die_soon_after_any_step_leave_conversations_that_go_on(settings: Any) -> None:
    for turn in range(8):
        await die_everywhere(settings, f"turn-{turn}", SOON_SECONDS)
