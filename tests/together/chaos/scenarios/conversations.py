"""Processes that die at every step of what they do to a conversation: it goes on within a lease, whole and in order.

What the dead one did is in it once, or it is not; no turn is lost, doubled or out of order. A response in the
background is made by the next worker and joins.
"""

import time
from functools import partial
from typing import NamedTuple

import openai
from openai import AsyncOpenAI

from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.deaths import TOKENS_PER_SECOND, Scenario, Stage
from tests.support.chaos.inside import WatchedEngine, counted, working
from tests.support.chaos.mortal import QUESTION, STEPS
from tests.support.chaos.storm import STEADY
from tests.support.service.inside import serving
from tests.support.service.listed import Said, said
from tests.support.service.process import MODEL
from tests.support.waiting import until

LEASE_SECONDS: float = STEADY["lease_seconds"]
SLACK_SECONDS = 8.0
"""The time that an answer takes beside that, on cores that others share."""

ASKED = ("user", QUESTION)
MADE = [ASKED, ("assistant", counted(5))]
NEXT = [("user", "What is my name?"), ("assistant", "Your name is Ada.")]
NAMED = ("user", "My name is Ada.")


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


async def die(stage: Stage, death: Death, soon: float = 0.0) -> None:
    """A conversation with which others go on after a process died within `soon` seconds of a step."""
    settings = stage.settings(embedded_worker=False)
    async with Aftermath(settings) as aftermath:
        async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.client() as client:
            id = (await client.conversations.create(items=[{"role": "user", "content": NAMED[1]}])).id
            assert await ask(client, "Count to 2.", id)
            before = await said(client, id)
            response = await queued(client, id) if death.deed in ("work", "cancel") else None
            await stage.program.die(settings, death.step, death.deed, response or id, after=soon)
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
            left = partial(aftermath.left_over, timed=not pinned)
            await until(left, 30, "something is left", wanted=lambda keys: keys == [])
        assert await aftermath.complaints() == []
        await aftermath.check_usage()
        if response is not None:
            await aftermath.check([response])
        assert seconds < LEASE_SECONDS * (2 if death.is_queued else 1) + SLACK_SECONDS


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


SCENARIO = Scenario(die, DEATHS, pushed=Death("work", "finishing", MADE), soon_turns=8)
