"""A client as one should be: it follows a background response to its end, over whichever API answers.

When its connection breaks it asks again, for what comes behind the last event that it has. All that it is sent it
checks on arrival: each number once and in order.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import httpx

from tests.support.oracles.event_grammar import Json, check_stream
from tests.support.service.process import MODEL

PAUSE_SECONDS = 0.05
RETRIED = (500, 502, 503)
SILENT_SECONDS = 30.0
"""How long a stream may be silent; it has a comment every few seconds."""


class Follower:
    """One response, from its creation to its end."""

    def __init__(self, urls: Callable[[], list[str]], chance: Random) -> None:
        """`urls` are the APIs that may be asked, as of now."""
        self._urls = urls
        self._chance = chance
        self.id: str | None = None
        self.events: list[Json] = []
        self.connections = 0
        """How many streams it took."""
        self.longest_pause = 0.0
        """The longest time between two batches of events, in seconds, reconnecting included."""
        self.over = False
        self._last = time.monotonic()

    @property
    def text(self) -> str:
        """The answer, as its deltas spell it."""
        return "".join(event["delta"] for event in self.events if event["type"] == "response.output_text.delta")

    @property
    def response(self) -> Json:
        """The response in the last event. Raises AssertionError where the stream was malformed."""
        return check_stream(self.events)

    async def create(self, **request: Any) -> None:
        """Create the response, again where it is not known whether that worked, and follow it to its end."""
        body = {"model": MODEL, "background": True, "stream": True, **request}
        while self.id is None:
            await self._stream("POST", "/v1/responses", json=body)
        await self.follow(self.id)

    async def follow(self, id: str) -> None:
        """Follow a response to its end, from what it has."""
        self.id = id
        while not self.over:
            query: dict[str, str] = {"stream": "true"}
            if self.events:
                query["starting_after"] = str(len(self.events) - 1)
            await self._stream("GET", f"/v1/responses/{id}", params=query)

    async def _stream(self, method: str, path: str, **how: Any) -> None:
        """Take what one connection gives, until it breaks or the response ends."""
        url = self._chance.choice(self._urls())
        timeout = httpx.Timeout(SILENT_SECONDS)
        try:
            async with (
                httpx.AsyncClient(base_url=url, timeout=timeout, trust_env=False, verify=False) as http,
                http.stream(method, path, **how) as answer,
            ):
                if answer.status_code in RETRIED:
                    await asyncio.sleep(PAUSE_SECONDS)
                    return
                assert answer.status_code == 200, (answer.status_code, await answer.aread())
                self.connections += 1
                async for block in _blocks(answer):
                    self._take(block)
        except (httpx.TransportError, httpx.StreamError):
            await asyncio.sleep(PAUSE_SECONDS)

    def _take(self, block: bytes) -> None:
        assert not self.over, f"{block!r} behind the end"
        _, _, data = block.partition(b"data: ")
        if data == b"[DONE]":
            self.over = True
            return
        if not data or block.startswith(b"event: keepalive"):
            return
        event = json.loads(data)
        assert event["sequence_number"] == len(self.events), (event["sequence_number"], len(self.events))
        now = time.monotonic()
        if self.events:
            self.longest_pause = max(self.longest_pause, now - self._last)
        self._last = now
        self.events.append(event)
        if self.id is None:
            self.id = event["response"]["id"]


async def _blocks(answer: httpx.Response) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in answer.aiter_bytes():
        *blocks, rest = (rest + piece).split(b"\n\n")
        for block in blocks:
            yield block
