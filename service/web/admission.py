"""How many requests one process works on at once, and how many streams of background responses it has open.

What is more is refused, at once and cheaply. A stream that follows a background response may be open for
hours and costs next to nothing while nothing is said, so it has a slot of another kind: else a few hundred followers
would keep everybody from cancelling what they follow. Whoever is going to follow takes that slot before anything is
accepted for it, and gives the other one back once he follows.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from prometheus_client import Counter

from service.errors import unavailable
from service.settings.settings import variable


class Admission:
    """Slots for requests and for followers."""

    def __init__(self, refused: Counter, *, requests: int, followers: int) -> None:
        """So many slots of each kind. `refused` counts what is refused, by the kind."""
        self._requests = _Slots(requests, "requests", "max_concurrent_requests", refused.labels("requests"))
        self._followers = _Slots(
            followers, "streams of background responses", "max_followers", refused.labels("followers")
        )
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def slot(self) -> Generator["Slot"]:
        """A request's slot until the end of the block. Raises ApiError 503 where none is free."""
        slot = Slot(self._requests, self._followers)
        self._inside += 1
        self._empty.clear()
        try:
            yield slot
        finally:
            slot.leave()
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    async def wait_until_empty(self, seconds: float) -> bool:
        """Wait until nobody has a slot, at most so long; whether that came true."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True


class _Slots:
    """Slots of one kind; `taken` of at most `limit` are in use."""

    def __init__(self, limit: int, what: str, setting: str, refused: Counter) -> None:
        self._limit = limit
        self._what = what
        self._setting = setting
        self._refused = refused
        self._taken = 0

    def take(self) -> None:
        """Take one. Raises ApiError 503."""
        if self._taken >= self._limit:
            self._refused.inc()
            raise unavailable(
                f"This process serves {self._limit} {self._what} already. Try again in a moment, or raise "
                f"{variable(self._setting)}."
            )
        self._taken += 1

    def give_back(self) -> None:
        self._taken -= 1


class Slot:
    """What one request takes up."""

    def __init__(self, requests: _Slots, followers: _Slots) -> None:
        """A slot among the requests. Raises ApiError 503."""
        self._requests = requests
        self._followers = followers
        requests.take()
        self._held = [requests]

    def take_follower(self) -> None:
        """Take a follower's slot as well. Raises ApiError 503."""
        self._followers.take()
        self._held.append(self._followers)

    def follow(self) -> None:
        """Only follow from now on: the slot among the requests is free again."""
        self._held.remove(self._requests)
        self._requests.give_back()

    def leave(self) -> None:
        """Give back what is left."""
        for slots in self._held:
            slots.give_back()
        self._held.clear()
