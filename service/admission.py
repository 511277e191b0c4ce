"""How many requests one process works on at once. What is more is told to come back, at once and cheaply."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from prometheus_client import Counter

from service.errors import unavailable


class Admission:
    """Places for requests; `taken` of at most `limit` are in use."""

    def __init__(self, limit: int, refused: Counter) -> None:
        """`refused` counts what is told to come back."""
        self.limit = limit
        self._refused = refused
        self.taken = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def place(self) -> Generator[None]:
        """Take a place until the end of the block. Raises ApiError 503 where none is free."""
        if self.taken >= self.limit:
            self._refused.inc()
            raise unavailable(
                f"This process serves {self.limit} requests already. Try again in a moment, or raise "
                "HARMONIUM_MAX_CONCURRENT_REQUESTS."
            )
        self.taken += 1
        self._empty.clear()
        try:
            yield
        finally:
            self.taken -= 1
            if not self.taken:
                self._empty.set()

    async def wait_until_empty(self, seconds: float) -> bool:
        """Wait until no place is taken, at most so long; whether that came true."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
