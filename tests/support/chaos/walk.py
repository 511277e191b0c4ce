"""A walk by chance over what is kept: turns are begun, continued, forked, read, deleted and erased at any API of a
fleet, and of each the walk remembers what its client was told.

The model answers with a digest of all that it was shown, so each answer proves its whole history. A turn whose creation
was cut off was never acknowledged, and nothing is said of it. Whatever is found wrong is kept in `wrong`.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any

import httpx

from tests.support.chaos.fleet import Fleet
from tests.support.chat.standin import Say, answer
from tests.support.markup.writing import Turn
from tests.support.waiting import until

WALKERS = 5
LONGEST = 8
"""The most turns of a chain."""

YOUNG = 60
"""How many of the newest turns most is done with, so that much is done with the same ones."""

CONTINUED = 20
"""How many turns are continued in the end."""

CALL_SECONDS = 6.0
SURE_SECONDS = 60.0
"""How long a fleet that nobody hurts may take until it says what became of a turn."""

PAUSE_SECONDS = 0.05

Said = list[tuple[str, str]]
"""The speakers and their words, in order."""


class State(Enum):
    """The knowledge of clients about a turn."""

    LIVE = "live"
    DOUBT = "in doubt"  # somebody asked for its deletion, and wasn't told of it yet
    GONE = "gone"


@dataclass(eq=False)
class Told:
    """A turn that was acknowledged."""

    id: str
    parent: "Told | None"
    words: str
    said: str
    state: State = State.LIVE
    erased: bool = False
    changes: int = 0
    """How often its state changed, so that who looked meanwhile doesn't judge."""

    @property
    def path(self) -> "list[Told]":
        """All turns from its root to itself."""
        return [*(self.parent.path if self.parent else ()), self]

    def become(self, state: State) -> None:
        self.state, self.changes = state, self.changes + 1


def digest_of(said: Iterable[tuple[str, str]]) -> str:
    return hashlib.sha256(json.dumps(list(map(list, said))).encode()).hexdigest()[:16]


def shown(path: Iterable[Told], words: str) -> Said:
    """All that a model is shown behind these turns and words, by its speakers."""
    said = [each for turn in path if not turn.erased for each in (("user", turn.words), ("assistant", turn.said))]
    return [*said, ("user", words)]


def prove(body: dict[str, Any]) -> Iterable[Any]:
    """The words of the model: a digest of all that it was shown."""
    said = [(each["role"], _text(each["content"])) for each in body["messages"] if each["role"] != "system"]
    return answer(Turn("", digest_of(said), []), ids=False)


PROVE: Say = prove


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


class Walk:
    """The walk of several clients, who rest between their requests, until so many turns were acknowledged."""

    def __init__(self, fleet: Fleet, model: str, turns: int, rest_seconds: float = 0.0) -> None:
        self.fleet, self.turns = fleet, turns
        self._rest_seconds = rest_seconds
        self.told: list[Told] = []
        self.wrong: list[str] = []
        self._model = model
        self._http = httpx.AsyncClient(timeout=CALL_SECONDS, trust_env=False, verify=False)
        self._tasks = [asyncio.create_task(self._go(Random(fleet.chance.random()))) for _ in range(WALKERS)]

    async def reach(self, share: float) -> None:
        """Wait until so much of the walk is done, from 0 to 1."""

        def reached() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return len(self.told) >= share * self.turns

        await until(reached, SURE_SECONDS * 10, "nobody is acknowledged")

    async def end(self) -> None:
        """Wait until all walkers are done."""
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    async def check(self) -> None:
        """Look at all turns, and fail where anything is wrong."""
        await self.look()
        assert self.wrong == [], "\n".join(self.wrong)

    async def look(self) -> None:
        """Look at each turn, once nobody walks: those that live are there and can be continued, the deleted are not."""
        turns = asyncio.Semaphore(WALKERS)
        living = [turn for turn in self.told if turn.state is State.LIVE]
        continued = self.fleet.chance.sample(living, min(CONTINUED, len(living)))

        async def look(turn: Told) -> None:
            async with turns:
                await self._look(turn)
                if turn in continued:
                    await self._continue(turn)

        await asyncio.gather(*map(look, self.told))

    async def _look(self, turn: Told) -> None:
        found = await self._sure("GET", f"/v1/responses/{turn.id}")
        items = await self._sure("GET", f"/v1/responses/{turn.id}/input_items?order=asc&limit=100")
        match turn.state:
            case State.LIVE if found.status_code != 200 or items.status_code != 200:
                self._note("lost", turn)
            case State.LIVE:
                listed = [(each["role"], _text(each["content"])) for each in items.json()["data"]]
                living = [each for each in turn.path[:-1] if each.state is State.LIVE]
                if _said(found.json()) != turn.said or listed != shown(living, turn.words):
                    self._note(f"differs: {found.text}, {listed}", turn)
            case State.GONE if (found.status_code, items.status_code) != (404, 404):
                self._note("readable, though deleted", turn)
            case _:
                pass

    async def _continue(self, turn: Told) -> None:
        body = {"model": self._model, "input": "And now?", "previous_response_id": turn.id, "store": False}
        reply = await self._sure("POST", "/v1/responses", body)
        if reply.status_code != 200 or _said(reply.json()) != digest_of(shown(turn.path, "And now?")):
            self._note(f"continued otherwise: {reply.text}", turn)

    async def _go(self, chance: Random) -> None:
        while len(self.told) < self.turns:
            await asyncio.sleep(self._rest_seconds * chance.uniform(0.5, 1.5))
            living = [turn for turn in self.told if turn.state is State.LIVE]
            some = living[-YOUNG:] if chance.random() < 0.8 else living
            kind = chance.random()
            if kind < 0.15 or not some:
                await self._create(chance, None)
            elif kind < 0.6:
                await self._create(chance, chance.choice(some))
            elif kind < 0.8:
                await self._read(chance, chance.choice(self.told))
            elif kind < 0.87:
                await self._delete(chance, chance.choice(some), "")
            elif kind < 0.96:
                await self._delete(chance, chance.choice(some), "?erase=true")
            else:
                await self._delete(chance, chance.choice(some), "?tree=true")

    async def _create(self, chance: Random, parent: Told | None) -> None:
        """A turn behind another one, or one that begins a tree."""
        path = [] if parent is None else parent.path
        if len(path) >= LONGEST:
            path, parent = [], None
        words, before = f"w{chance.getrandbits(60):x}", _as_told(path)
        body = {"model": self._model, "input": words, "previous_response_id": parent and parent.id}
        reply = await self._call(chance, "POST", "/v1/responses", body)
        steady = before == _as_told(path) and all(each.state is not State.DOUBT for each in path)
        if reply is not None and reply.status_code == 200 and reply.json()["status"] == "completed":
            turn = Told(reply.json()["id"], parent, words, _said(reply.json()))
            self.told.append(turn)
            if steady and turn.said != digest_of(shown(path, words)):
                self._note("saw another history", turn)
            if not steady:
                turn.become(State.DOUBT)  # its tree may have been deleted since
        elif reply is not None and reply.status_code in (400, 404) and steady and parent is not None:
            self._note(f"can't be continued: {reply.text[:200]}", parent)

    async def _read(self, chance: Random, turn: Told) -> None:
        before = turn.state, turn.changes
        reply = await self._call(chance, "GET", f"/v1/responses/{turn.id}")
        if reply is None or (turn.state, turn.changes) != before:
            return
        if turn.state is State.LIVE and (reply.status_code == 404 or _said_of(reply) not in (None, turn.said)):
            self._note(f"read as {reply.status_code}", turn)
        if turn.state is State.GONE and reply.status_code == 200:
            self._note("read, though deleted", turn)

    async def _delete(self, chance: Random, asked: Told, how: str) -> None:
        """Delete a turn that lives, or all of its tree, and ask again until that is certain."""
        root = asked.path[0]
        turns = [each for each in self.told if each.path[0] is root] if how == "?tree=true" else [asked]
        for turn in turns:
            if turn.state is State.LIVE:
                turn.become(State.DOUBT)
        while True:
            reply = await self._call(chance, "DELETE", f"/v1/responses/{asked.id}{how}")
            if reply is not None and reply.status_code in (200, 404):
                break
            await asyncio.sleep(PAUSE_SECONDS)
        for turn in turns:
            turn.become(State.GONE)
            turn.erased = turn.erased or how == "?erase=true"

    async def _call(self, chance: Random, method: str, path: str, body: Any = None) -> httpx.Response | None:
        """The reply of some API; None where nobody knows what became of it."""
        url = chance.choice(self.fleet.apis).url
        try:
            reply = await self._http.request(method, url + path, json=body)
        except httpx.TransportError:
            await asyncio.sleep(PAUSE_SECONDS)
            return None
        if reply.status_code == 429 or reply.status_code >= 500:
            await asyncio.sleep(PAUSE_SECONDS)
            return None
        return reply

    async def _sure(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """The reply, once somebody knows."""
        return await until(
            lambda: self._call(self.fleet.chance, method, path, body),
            SURE_SECONDS,
            f"nobody answers {path}",
            wanted=lambda reply: reply is not None,
        )

    def _note(self, what: str, turn: Told) -> None:
        self.fleet.note(f"{what}: {turn.id}")
        path = [(each.id, each.state.value, each.erased) for each in turn.path]
        self.wrong.append(f"{what}: {turn.id}, {turn.state.value}, behind {path}")


def _as_told(path: Iterable[Told]) -> list[tuple[State, int]]:
    return [(each.state, each.changes) for each in path]


def _said(response: Any) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def _said_of(reply: httpx.Response) -> str | None:
    return _said(reply.json()) if reply.status_code == 200 else None
