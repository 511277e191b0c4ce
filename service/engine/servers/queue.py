"""Who waits for a place at a server: by priority, then by age."""

import asyncio
import heapq
from itertools import count


class Queue:
    """Waiters. How many there are is for who lets generations begin to bound."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def ticket(self, priority: int) -> tuple[int, int]:
        """What says whose turn it is; it is kept for as long as somebody waits, however often."""
        return priority, next(self._numbers)

    async def wait(self, ticket: tuple[int, int]) -> None:
        """Return when a place may have become free."""
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (*ticket, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.free()
            raise

    def free(self) -> None:
        """A place is free, or will never be: the next one may look."""
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
