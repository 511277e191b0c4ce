"""APIs with WebSockets that are killed, or stopped, in the middle of a turn: their clients connect again and go on.

Nothing is stored halfway or twice, and conversations are free again within a lease.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from openai import AsyncOpenAI, NotFoundError

from tests.support.chaos.aftermath import Aftermath
from tests.support.chaos.fleet import Fleet, Member, running
from tests.support.chaos.storm import LEASE_SECONDS, SETTINGS
from tests.support.chaos.talker import Talker
from tests.support.lengths import lengths
from tests.support.service.listed import said
from tests.support.waiting import until

NUMBERS, MANY_NUMBERS = 12, 150
"""How far is counted in a turn: in a moment, and for longer than a service that stops waits (STOP_SECONDS)."""

STOP_SECONDS = 1
SECONDS = 60.0

pytestmark = pytest.mark.timeout(300)


class Talk:
    """Clients of each kind on each API of a fleet. Those with a conversation share it."""

    def __init__(self, fleet: Fleet, conversation: str, numbers: int) -> None:
        self.fleet = fleet
        self.conversation = conversation
        self._by_api = {
            api.name: [
                Talker(api.url, f"{kind}-{api.name}", kind, numbers=numbers, conversation=conversation)
                for kind in ("stored", "unstored", "conversation")
            ]
            for api in fleet.apis
        }
        self.talkers = [each for talkers in self._by_api.values() for each in talkers]
        self._over = asyncio.Event()

    async def speaking(self, api: Member) -> None:
        """Wait until those who talk to an API are in the middle of answers; all but one, who may have to wait."""
        mine = self._by_api[api.name]
        await until(lambda: sum(each.speaks for each in mine) >= len(mine) - 1, SECONDS, "some are silent")

    async def going_on(self) -> None:
        """Wait until everybody has ended a turn that was begun since, or was cut off."""
        wanted = {each: len(each.turns) + 2 for each in self.talkers}
        await until(lambda: all(len(each.turns) >= wanted[each] for each in self.talkers), SECONDS, "some are silent")

    def begin(self, group: asyncio.TaskGroup) -> None:
        for each in self.talkers:
            group.create_task(each.talk(self._over.is_set))

    def end(self) -> None:
        """Let each end with its turn."""
        self._over.set()

    async def check(self) -> None:
        """Everything is there once, whole and in order."""
        async with AsyncOpenAI(base_url=f"{self.fleet.apis[0].url}/v1", api_key="none") as client:
            for each in self.talkers:
                if each.kind == "stored":
                    await _check_chain(client, each)
            mine = [each for each in self.talkers if each.kind == "conversation"]
            check_conversation(await said(client, self.conversation), mine)
            for id in (id for each in self.talkers for id in each.lost):
                with pytest.raises(NotFoundError):
                    await client.responses.retrieve(id)
        async with Aftermath(self.fleet.settings) as aftermath:
            for id in await aftermath.ids():
                await aftermath.response(id)
            assert await aftermath.left_over(timed=False) == []
            assert await aftermath.complaints() == []


async def _check_chain(client: AsyncOpenAI, talker: Talker) -> None:
    """Each turn is stored, and continues the one before."""
    before = None
    for turn in talker.turns:
        response = await client.responses.retrieve(turn.id)
        assert (response.previous_response_id, response.status) == (before, turn.status)
        assert response.output_text == turn.said
        before = turn.id


def check_conversation(messages: list[tuple[str, str]], talkers: list[Talker]) -> None:
    """All that clients know to have ended is in it once and in their order, and nothing by half."""
    asked = [text for role, text in messages if role == "user"]
    answers = dict(zip(asked, _answers(messages), strict=True))
    assert len(answers) == len(asked), "something is there twice"
    assert {*asked} <= {text for each in talkers for text in each.asked}
    for each in talkers:
        assert [text for text in asked if text in each.asked] == [text for text in each.asked if text in answers]
        for turn in each.turns:
            assert answers[turn.asked] == turn.said


def _answers(messages: list[tuple[str, str]]) -> list[str]:
    """What follows each question: an answer, or nothing where it was cut off before it began."""
    answers: list[str] = []
    for role, text in messages:
        if role == "user":
            answers.append("")
        else:
            assert answers[-1] == ""
            answers[-1] = text
    return answers


@asynccontextmanager
async def talking(folder: Path, seed: int, numbers: int) -> AsyncIterator[Talk]:
    """A fleet with clients that talk to it, and are checked at the end of the block."""
    settings = SETTINGS | {"demo_tokens_per_second": 100, "shutdown_seconds": STOP_SECONDS}
    async with running(folder, seed, workers=1, **settings) as fleet:
        async with AsyncOpenAI(base_url=f"{fleet.apis[0].url}/v1", api_key="none") as client:
            talk = Talk(fleet, (await client.conversations.create()).id, numbers)
        async with asyncio.TaskGroup() as group:
            talk.begin(group)
            yield talk
            talk.end()
        await talk.check()


KILL, STOP = 1006, 1012
"""How an API ends: the code with which its connections are closed."""


@pytest.mark.parametrize(
    ("numbers", "ends"),
    [
        *lengths((MANY_NUMBERS, [STOP, KILL]), (NUMBERS, [KILL] * 20)),
        *lengths((), (MANY_NUMBERS, [STOP] * 12))[1:],
    ],
)
async def test_clients_of_apis_that_stop_or_are_killed_go_on_where_they_were(
    tmp_path: Path, numbers: int, ends: list[int]
) -> None:
    """They end so, one after the other."""
    async with talking(tmp_path, 32, numbers) as talk, Aftermath(talk.fleet.settings) as aftermath:
        for number, how in enumerate(ends):
            api = talk.fleet.apis[number % len(talk.fleet.apis)]
            await talk.speaking(api)
            if how == KILL:
                talk.fleet.kill(api)
                assert await aftermath.held_seconds(of=talk.conversation) <= LEASE_SECONDS
                talk.fleet.launch(api)
            else:
                assert await talk.fleet.restart(api) == 0
            await talk.going_on()
            if KILL not in ends[: number + 1]:  # what was said is stored then
                assert [id for each in talk.talkers for id in each.lost] == []
    assert {code for each in talk.talkers for code in each.close_codes} == {*ends}
    assert sum(len(each.broken) for each in talk.talkers) >= ends.count(KILL)
    statuses = {turn.status for each in talk.talkers for turn in each.turns}
    assert STOP not in ends or "cancelled" in statuses
