"""How many requests one process works on at once, and how many streams of background responses it has open.

More are refused at once. A stream that follows a background response may be open for hours and costs little while no
event comes, so it has a slot of another kind: else a few hundred followers would keep everybody from cancelling what
they follow. A follower takes its slot before anything is accepted, and gives the request's slot back once it follows.
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
        self._taken = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def slot(self) -> Generator["Slot"]:
        """A request's slot until the end of the block. Raises ApiError 503 where none is free."""
        slot = Slot(self._requests, self._followers)
        self._taken += 1
        self._empty.clear()
        try:
            yield slot
        finally:
            slot.leave()
            self._taken -= 1
            if not self._taken:
                self._empty.set()

    async def wait_until_empty(self, seconds: float) -> bool:
        """Wait until no slot is taken, for so many seconds at most; whether that came true."""
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
        self._slots = [requests]

    def take_follower(self) -> None:
        """Take a follower's slot as well. Raises ApiError 503."""
        self._followers.take()
        self._slots.append(self._followers)

    def follow(self) -> None:
        """Only follow from now on: the request's slot is free again."""
        self._slots.remove(self._requests)
        self._requests.give_back()

    def leave(self) -> None:
        """Give back what is left."""
        for slots in self._slots:
            slots.give_back()
        self._slots.clear()
