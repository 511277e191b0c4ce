"""A background response to follow: its events, its log, and what its channel makes of what is said, all in memory.

The log has what was written, whole and in order. What the channel loses, repeats, delays or drops is up to the test.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from service.api import events
from service.api.events import Event
from service.background.follow import Following
from service.backoff import Backoff
from service.responses.output.journal import Batch, encode_batch
from store.errors import StoreUnavailable
from store.jobs.log import LogEntry
from tests.support.responses import samples

TENANT = "acme"
ID = samples.RESPONSE_ID
ITEM_ID = f"msg_{ID[5:]}0000"


def events_of(count: int, *, ended: bool = True) -> list[Event]:
    """So many events of a response, the first that it was created, the last of one that has ended that it has."""
    said: list[Event] = [events.ResponseCreated(samples.created())]
    said += [events.OutputTextDelta(ITEM_ID, 0, 0, f"word {number} ") for number in range(1, count - ended)]
    said += [events.ResponseCompleted(samples.created())] * ended
    for number, event in enumerate(said):
        event.sequence_number = number
    return said


def entry_of(batch: Sequence[Event]) -> LogEntry:
    """Events that follow each other, as a log has them."""
    return LogEntry(batch[-1].sequence_number, encode_batch(Batch(list(batch))))


def message_of(entry: LogEntry) -> bytes:
    """An entry as its channel is told."""
    return b"%d %b" % (entry.last + 1, entry.blob)


class World:
    """A log, and whoever listens to its channel: the ports that a follower needs.

    Whenever it is asked anything, `turn` is called first, to change what it will say.
    """

    def __init__(self) -> None:
        self.entries: list[LogEntry] | None = []
        """What was written; None where the log is gone."""
        self.said: list[bytes] | None = []
        """What the listener will hear next; None where it missed something."""
        self.away = 0
        """How many of the next questions the store won't answer."""
        self.deaf = 0
        """How many of the next attempts to listen fail."""
        self.asked = 0
        self.read_entries = 0
        """How many entries it gave away in all."""
        self.silences = 0
        """How often nothing was said in time."""
        self.listening = False
        self._woken = False
        self.turn: Callable[[], None] = lambda: None

    def write(self, batch: Sequence[Event], *, says: int = 1) -> bytes:
        """Add an entry, and say it so many times; the message."""
        assert self.entries is not None
        entry = entry_of(batch)
        self.entries.append(entry)
        message = message_of(entry)
        self.say(*[message] * says)
        return message

    def say(self, *messages: bytes) -> None:
        """Say something to a listener who hasn't missed anything since it last heard."""
        if self.said is not None:
            self.said += messages

    async def read(self, tenant: str, id: str, after: int, limit: int) -> list[LogEntry]:
        found = [entry for entry in self._answer() if entry.last > after][:limit]
        self.read_entries += len(found)
        return found

    async def tail(self, tenant: str, id: str) -> LogEntry | None:
        return next(reversed(self._answer()), None)

    def tail_soon(self, tenant: str, id: str) -> asyncio.Future[LogEntry | None]:
        asked: asyncio.Future[LogEntry | None] = asyncio.get_running_loop().create_future()
        try:
            asked.set_result(next(reversed(self._answer()), None))
        except StoreUnavailable as error:
            asked.set_exception(error)
        return asked

    def channel(self, tenant: str, id: str) -> str:
        return f"{tenant}/{id}"

    async def messages(self, seconds: float) -> list[bytes] | None:
        """As Listener, but nobody waits for silence."""
        await asyncio.sleep(0)
        self.turn()
        said, self.said = self.said, []
        self.silences += said == [] and not self._woken
        self._woken = False
        return said

    def wake(self) -> None:
        """The next silence is none."""
        self._woken = True

    def _answer(self) -> list[LogEntry]:
        self.asked += 1
        self.turn()
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away")
        return self.entries or []


class Ether:
    """Where a world's channel is."""

    def __init__(self, world: World) -> None:
        self._world = world

    @asynccontextmanager
    async def channel(self, name: str) -> AsyncIterator[World]:
        assert name == self._world.channel(TENANT, ID)
        if self._world.deaf:
            self._world.deaf -= 1
            raise StoreUnavailable("not subscribed")
        self._world.listening = True
        try:
            yield self._world
        finally:
            self._world.listening = False


def following(
    world: World, after: int = -1, *, begun: Sequence[Event] = (), clock: Callable[[], float] = lambda: 0.0
) -> Following:
    """A follower who never really pauses."""
    return Following(world, Ether(world), TENANT, ID, after, begun=begun, clock=clock, backoff=Backoff(0, 0))


async def numbers(follower: Following) -> list[int]:
    """The sequence numbers that a follower is handed, until there are no more."""
    return [event.sequence_number async for batch in follower.events() for event in batch]
