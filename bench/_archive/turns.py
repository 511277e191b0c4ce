"""Turns as the service stores them, to fill a store with: responses of a service, with other texts and other ids.

The demo engine repeats itself, so their texts are those of Python's documentation, of which none comes twice. They are
stored in any number of conversations all the same: an archive compresses each tree by itself, so that others are alike
takes nothing away from what it comes to.
"""

import asyncio
import itertools
import json
import random
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

from bench._harness import Server, connected
from service.harmony import tokens
from store.embedded import EmbeddedServer
from store.history.history import ConversationHistoryStore
from store.keys import digits_of
from store.redis.connection import connect
from store.turn import Status, StoredMessage, Turn

TENANT = "default"
PATH = "/v1/responses"
CONVERSATIONS, DEPTH = 4, 50
TOKENS = 100
"""Of the answers that the service makes: so many that each has a reasoning and a message."""

CHARS = {"user": 300, "analysis": 400, "final": 900}
LEAST_CHARS = 60
"""The most characters of what a user says, of the reasoning, and of the answer; and the fewest of each."""

AT_ONCE = 32


def body(number: int, tokens: int, **more: object) -> bytes:
    """A request whose answer is cut at so many tokens."""
    words = f"Write at least 400 words about the year {1000 + number}, please, and be brief."
    return json.dumps({"model": "gpt-oss-20b", "input": words, "max_output_tokens": tokens, **more}).encode()


class Stored(NamedTuple):
    """A turn of a conversation as it was stored first, with the digits of the one that it continues."""

    turn: Turn
    above: str


class Conversations:
    """Conversations to store, any number of them, each with as many turns as wanted up to DEPTH."""

    def __init__(self, made: Sequence[Sequence[Stored]]) -> None:
        self._made, self._next = made, itertools.count()

    def turns(self, store: ConversationHistoryStore, depth: int) -> Iterator[Turn]:
        """The turns of the next conversation, which is a part of one of those that were made, as a store is given
        them.
        """
        parts = len(self._made[0]) // depth
        at, which = divmod(next(self._next), len(self._made))
        first = depth * (at % parts)
        parent: str | None = None
        for turn, above in self._made[which][first : first + depth]:
            id = store.new_id(parent)
            response = turn.response.replace(digits_of(turn.id).encode(), digits_of(id).encode())
            if parent is not None:
                response = response.replace(above.encode(), digits_of(parent).encode())
            yield Turn(id, parent, turn.status, turn.messages, response, turn.items)
            parent = id

    async def append(self, store: ConversationHistoryStore, depth: int) -> str:
        """Store a conversation; the id of its last turn."""
        id = ""
        for turn in self.turns(store, depth):
            await store.append(TENANT, turn)
            id = turn.id
        return id

    async def fill(self, store: ConversationHistoryStore, count: int, depth: int) -> list[str]:
        """Store so many conversations, AT_ONCE of them at the same time; the ids of their last turns."""
        left = iter(range(count))

        async def some() -> list[str]:
            return [await self.append(store, depth) for _ in left]

        return list(itertools.chain(*await asyncio.gather(*(some() for _ in range(AT_ONCE)))))


class Prose:
    """The paragraphs of Python's own documentation, each once, in no order."""

    def __init__(self) -> None:
        texts = (topics[name] for name in sorted(topics))
        said = (re.sub(r"\s+", " ", part.strip()) for text in texts for part in text.split("\n\n"))
        found = [
            each for each in dict.fromkeys(said) if each[:1].isalpha() and LEAST_CHARS <= len(each) <= CHARS["final"]
        ]
        random.Random(1).shuffle(found)
        self._left = iter(found)

    def told(self, stored: Stored) -> Stored:
        """A turn in which all that is said is replaced."""
        turn = stored.turn
        said = {channel: next(self._left)[:most] for channel, most in CHARS.items()}
        response, items = json.loads(turn.response), json.loads(turn.items)
        items[0]["content"][0]["text"] = said["user"]
        for item in response["output"]:
            item["content"][0]["text"] = said["analysis" if item["type"] == "reasoning" else "final"]
        messages = tuple(_saying(each, said[each.channel or each.role]) for each in turn.messages)
        written = Turn(turn.id, None, turn.status, messages, _json(response), _json(items))
        return Stored(written, stored.above)


def _saying(message: StoredMessage, text: str) -> StoredMessage:
    """A message that says something else."""
    ids = tokens.unpack(message.tokens)
    head = ids[: ids.index(tokens.MESSAGE) + 1]
    packed = tokens.pack([*head, *tokens.encode(text), ids[-1]])
    return StoredMessage(message.role, packed, message.channel, item=message.item)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


async def conversations(depth: int = DEPTH) -> Conversations:
    """Have a service make conversations with so many turns."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as redis:
        with Server(["-m", "service", "serve"], settings={"HARMONIUM_REDIS_URL": redis.url}) as server:
            tips = await _made(server.port, depth)
        prose = Prose()
        return Conversations([[prose.told(each) for each in turns] for turns in await _read(redis.url, tips)])


async def _made(port: int, depth: int) -> list[list[str]]:
    async with connected(port, 1) as (client,):
        await client.get("/ready")
        found: list[list[str]] = []
        for number in range(CONVERSATIONS):
            ids: list[str] = []
            for turn in range(depth):
                above = {"previous_response_id": ids[-1]} if ids else {}
                answer = await client.post(PATH, body(depth * number + turn, TOKENS, **above))
                ids.append(json.loads(answer)["id"])
            found.append(ids)
    return found


async def _read(url: str, conversations: Sequence[Sequence[str]]) -> list[list[Stored]]:
    store = ConversationHistoryStore(connect(url))
    found: list[list[Stored]] = []
    for ids in conversations:
        chain = await store.chain(TENANT, ids[-1])
        stored: list[Stored] = []
        for id, messages in zip(ids, chain.turns, strict=True):
            ((response, items),) = await store.items(TENANT, [id])
            turn = Turn(id, None, Status.INCOMPLETE, messages, response, items)
            stored.append(Stored(turn, digits_of(stored[-1].turn.id) if stored else ""))
        found.append(stored)
    await store.close()
    return found
