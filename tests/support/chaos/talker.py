"""A client that talks over a WebSocket as one should: by the official SDK, which connects again where it breaks.

Each of its turns continues the one before. Where a connection breaks in the middle of one it learns what became of that
and says the next thing behind what is there: by `previous_response_id`, or in its conversation, or, where nothing is
stored, by sending all that was said once more. No text is said twice, so whatever is there twice shows.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import openai
from openai import AsyncOpenAI
from openai.types.responses import Response
from openai.types.websocket_reconnection import ReconnectingEvent
from websockets.exceptions import ConnectionClosed

from tests.support.chaos.inside import counted
from tests.support.service.process import MODEL

Kind = Literal["stored", "unstored", "conversation"]

RETRIES = 1_000
FIRST_SECONDS, MOST_SECONDS = 0.05, 0.3
"""How long it waits before it connects again."""

PAUSE_SECONDS = 0.05
"""How long it waits before it asks again for what was refused for now."""

OTHERS_SECONDS = 4 * PAUSE_SECONDS
"""How long it lets others of its conversation go first."""

BACK_SECONDS = 60.0
"""How long a service may take to be back."""

ENDS = ("response.completed", "response.failed")
"""How what was completed ends, and what was cancelled."""

FOR_NOW = ("conversation_locked", "service_unavailable")


class Turn(NamedTuple):
    """A response that has ended: its id, what was asked, what it said and how it ended."""

    id: str
    asked: str
    said: str
    status: str


class Talker:
    """One client, which talks in one lane to one API, until so many turns are complete."""

    def __init__(self, url: str, name: str, kind: Kind, *, numbers: int, conversation: str | None = None) -> None:
        """It lets count to `numbers` in each turn. `conversation` is where it does, if it is of that kind."""
        self.name = name
        self.kind: Kind = kind
        self.turns: list[Turn] = []
        """The responses whose end it knows, in order."""
        self.broken: list[str] = []
        """The ids of those that were under way when a connection broke."""
        self.lost: list[str] = []
        """The ids of those of them that aren't stored."""
        self.asked: list[str] = []
        """All that it said."""
        self.close_codes: list[int] = []
        """With what its connections were closed."""
        self.deltas = 0
        """How many it has seen in the turn that is under way."""
        self._client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30)
        self._numbers = numbers
        self._conversation = conversation
        self._all: list[dict[str, Any]] = []
        """What was said, for who has to send it again."""
        self._newest: str | None = None
        self._under_way: str | None = None
        self._connection: Any = None
        self._tasks: asyncio.TaskGroup
        self._asking: asyncio.Task[None] | None = None
        self._heard = True
        """Whether anything came over this connection."""

    @property
    def speaks(self) -> bool:
        """Whether it has heard a part of an answer."""
        return self._under_way is not None and self.deltas > 0

    async def talk(self, enough: Callable[[], bool]) -> None:
        """Talk until it is `enough`, at the end of a turn."""
        manager = self._client.responses.connect(
            on_reconnecting=self._reconnects, max_retries=RETRIES, initial_delay=FIRST_SECONDS, max_delay=MOST_SECONDS
        )
        async with self._client, manager as self._connection, asyncio.TaskGroup() as self._tasks:
            self._ask_soon()
            async for event in self._connection:
                self._heard = True
                self._take(event)
                if event.type == "response.completed" and enough():
                    break
                if event.type in ENDS:
                    self._ask_soon(OTHERS_SECONDS if self.kind == "conversation" else 0.0)
            else:
                raise AssertionError("the connection ended")

    def _take(self, event: Any) -> None:
        if event.type == "response.created":
            self._under_way, self.deltas = event.response.id, 0
        elif event.type == "response.output_text.delta":
            self.deltas += 1
        elif event.type in ENDS:
            self._note(event.response)
        elif event.type == "error":
            self._refused(event.error)

    def _note(self, response: Response) -> None:
        """A response has ended: it is complete, or was cut off as its service stops."""
        numbers = counted(self._numbers)
        if response.status == "completed":
            assert response.output_text == numbers
        else:
            assert response.status == "cancelled", response.status
            assert numbers.startswith(response.output_text)
        self.turns.append(Turn(response.id, self.asked[-1], response.output_text, response.status))
        self._all += [_message("user", self.asked[-1]), _message("assistant", response.output_text)]
        self._under_way, self._newest = None, response.id

    def _refused(self, error: Any) -> None:
        """A frame was refused: for now, or as the lane knows nothing any more of what isn't stored."""
        if error.code == "previous_response_not_found" and self.kind == "unstored":
            self._newest = None
            self._ask_soon()
        else:
            assert error.code in FOR_NOW, error
            self._ask_soon(PAUSE_SECONDS)

    def _reconnects(self, event: ReconnectingEvent) -> None:
        """The connection is broken, and the SDK about to make another one."""
        if self._heard:
            self._heard = False
            self.close_codes.append(event.close_code)
            if self._under_way is not None:
                self.broken.append(self._under_way)
            self._ask_soon(after=self._under_way)
            self._under_way = None

    def _ask_soon(self, seconds: float = 0.0, *, after: str | None = None) -> None:
        """Say the next thing, behind the response `after` if that is there."""
        if self._asking is not None:
            self._asking.cancel()

        async def ask() -> None:
            await asyncio.sleep(seconds)
            if after is not None and self.kind != "unstored":
                await self._look_for(after)
            try:
                await self._ask()
            except ConnectionClosed:  # the SDK is about to find that out, too
                self._heard = True

        self._asking = self._tasks.create_task(ask())

    async def _look_for(self, id: str) -> None:
        """Learn what became of a response whose end it hasn't seen, once the service is back."""
        async with asyncio.timeout(BACK_SECONDS):
            while True:
                try:
                    self._note(await self._client.responses.retrieve(id))
                except openai.NotFoundError:
                    self.lost.append(id)
                except (openai.APIConnectionError, openai.InternalServerError):
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                return

    async def _ask(self) -> None:
        """Say the next thing; while there is no connection it waits for the next one."""
        number = len(self.asked)
        said = f"{self.name}, {number}. Count to {self._numbers}."
        self.asked.append(said)
        more: dict[str, Any] = {"store": self.kind != "unstored", "stream_id": self.name}
        new = [_message("user", said)]
        if self.kind == "conversation":
            more["conversation"] = self._conversation
        elif self._newest is not None:
            more["previous_response_id"] = self._newest
        elif self.kind == "unstored":
            new = [*self._all, *new]
        await self._connection.response.create(model=MODEL, input=new, **more)


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}
