"""The load that running generations put on their servers, and the queue of those that wait for room.

A generation takes its prompt's tokens and, of its allowed output, the expected number: the mean of the latest ones.
Tokens sampled beyond that count as they come. The whole allowed output would be ten times too much, as few use it,
and a server would stand half empty. A prefix that prompts share counts each time.

The queue is ordered by priority, then by the tenant's load under way (least first), then by age. None goes past the
first that waits for the same server, or a large prompt would wait for ever. A request waits for its home, the server
that has its prefix cached; then it takes any for which nobody waits; at last it queues for all, as if it were new:

    own ─▶ idle ─▶ any

So a server serves the requests whose home it is as long as these don't wait much longer elsewhere, none is idle for
long, and where all lines are long nobody changes over. Never decide here how much room a server has.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import count
from time import monotonic
from typing import NamedTuple

import msgspec

from service.engine.port import EngineOverloaded, EngineUnavailable, Generation, Passed
from service.engine.servers.choosing import Home
from service.engine.servers.server import EngineServer
from service.shares import Rate, Share

FIRST_EXPECTED = 512.0
"""The output tokens that are expected before any generation has ended."""

MEAN_OF = 64

BYTES_A_TOKEN = 4
"""The bytes of one token in a request that is passed on, or whose prompt the server makes."""


PICTURE_TOKENS = 1024
"""The tokens of a picture in such a prompt, of which only the server knows how many there are."""


class Need(msgspec.Struct, frozen=True):
    """The load of a generation: its tenant, and the tokens of its prompt and of its output."""

    tenant: str
    prompt: int
    output: int

    @property
    def tokens(self) -> int:
        return self.prompt + self.output


class Reach(IntEnum):
    """The servers that a waiting request takes besides its home. Only time moves it, each time to the next."""

    OWN = 0
    """None."""
    IDLE = 1
    """A server for which nobody waits: it has waited as long as computing its prompt anew would take."""
    ANY = 2
    """All: it has waited so long that its home must be worse off than the others."""


class Ticket:
    """A generation that wants a place: its load, the servers that may take it, and how long it has waited."""

    def __init__(self, number: int, asked: Generation | Passed, need: Need) -> None:
        self.number = number
        self.asked = asked
        self.need = need
        self.priority = asked.priority
        self.begun = isinstance(asked, Generation) and asked.begun
        self.refused: set[EngineServer] = set()
        """Servers that are too busy for it."""
        self.trouble: EngineUnavailable | None = None
        """The reason why the last one didn't begin with it."""
        self.home: Home | None = None
        self.reach = Reach.OWN
        self.late = number
        """Its number in the lines of other servers than its home, once it stands there."""
        self.widens: tuple[tuple[float, Reach], ...] = ()
        """The seconds of waiting after which it gets each reach."""
        self.deadline: float | None = None
        self.answer: asyncio.Future[Held | None] | None = None

    def wait_for_home(self, alone_seconds: float, apart_seconds: float) -> None:
        """Have it wait so long for its home alone, and so long before it stands in line for all servers."""
        self.widens = (alone_seconds, Reach.IDLE), (apart_seconds, Reach.ANY)
        if not alone_seconds:
            self.reach = max(self.reach, Reach.IDLE)

    def fails(self, server: EngineServer, trouble: EngineUnavailable) -> None:
        self.trouble = trouble
        if isinstance(trouble, EngineOverloaded):
            self.refused.add(server)

    def may_have(self, server: EngineServer) -> bool:
        model = self.asked.model
        return server not in self.refused and (not model or (server.facts is not None and server.facts.model == model))


class _Stand(NamedTuple):
    """The present position of a ticket, for its home or for all servers. Stands sort in the order of service: of two
    with the same number, one is the last.
    """

    last: bool
    order: tuple[bool, int, int]
    number: int
    ticket: Ticket
    home: EngineServer | None


class Held:
    """A generation's place at a server, until `release`."""

    def __init__(self, server: EngineServer, need: Need, places: int, admission: "EngineAdmission") -> None:
        self.server = server
        self._need = need
        self._places = places
        self._admission = admission
        self._tokens = 0
        self._sampled = 0
        self._since = monotonic()
        self.first_seconds = 0.0
        server.running += places
        self._take(need.tokens)

    def note(self, tokens: int) -> None:
        self.first_seconds = self.first_seconds or monotonic() - self._since
        self._sampled += tokens
        if (more := self._need.prompt + self._sampled - self._tokens) > 0:
            self._take(more)

    def release(self) -> None:
        self.server.running -= self._places
        self.server.tokens -= self._tokens
        self._admission.ended(self._need.tenant, self._tokens, self._sampled)

    def _take(self, tokens: int) -> None:
        self._tokens += tokens
        self.server.tokens += tokens
        self._admission.began(self._need.tenant, tokens)


class EngineAdmission:
    """The generations under way at an engine's servers, and those that wait, `waiting` at most."""

    def __init__(
        self,
        waiting: int,
        servers: Callable[[], Collection[EngineServer]],
        give: Callable[[Ticket, Sequence[EngineServer], EngineServer | None], Held | None],
    ) -> None:
        """`servers` have places, or will have. `give` gives one at one of some, and at home where a home is named."""
        self._servers = servers
        self._give = give
        self._numbers = count()
        self._waiting = set[Ticket]()
        self._under_way = Counter[str]()
        self._share = Share(waiting, several=self._several)
        self._rate = Rate()
        self._expected = FIRST_EXPECTED

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def ticket(self, asked: Generation | Passed, context_tokens: int) -> Ticket:
        """A ticket, to be kept through all attempts: it sets the order. None counts more than the model's context."""
        expected = int(self._expected)
        if isinstance(asked, Generation):
            prompt = len(asked.prompt) + PICTURE_TOKENS * len(asked.pictures)
            if asked.asks is not None:
                prompt = asked.asks.size // BYTES_A_TOKEN + PICTURE_TOKENS * len(asked.asks.pictures)
            output, most = asked.sampling.max_tokens, context_tokens
        else:
            prompt = sum(len(memoryview(each)) for each in asked.members.values()) // BYTES_A_TOKEN
            output, most = expected * asked.answers, context_tokens * asked.answers
            expected = output
        prompt = min(prompt, most)
        return Ticket(next(self._numbers), asked, Need(asked.tenant, prompt, min(output, expected, most - prompt)))

    def now(self, ticket: Ticket) -> Held | None:
        """A place for it at once, if there is one and nobody that waits for it goes first."""
        for stand, servers in self._firsts(self._stands([*self._waiting, ticket])):
            if stand.ticket is ticket and (held := self._give(ticket, servers, stand.home)) is not None:
                return held
        return None

    async def wait(self, ticket: Ticket) -> Held | None:
        """The place of a ticket, once it is its turn; None where the caller should look itself why there will be none.
        Raises EngineOverloaded where too many wait, and TimeoutError once its time is over.
        """
        tenant, loop = ticket.need.tenant, asyncio.get_running_loop()
        if not self._share.fits(tenant, 1):
            ticket.reach = max(ticket.reach, Reach.IDLE)
            if (held := self.now(ticket)) is not None:
                return held
            raise EngineOverloaded(f"{len(self._waiting)} generations wait for room already", self.seconds(ticket.need))
        answer = ticket.answer = loop.create_future()
        self._share.take(tenant, 1)
        self._waiting.add(ticket)
        further = [each for each in ticket.widens if each[1] > ticket.reach]
        timers = [loop.call_later(seconds, self._widen, ticket, reach) for seconds, reach in further]
        self.look()
        try:
            async with asyncio.timeout_at(ticket.deadline):
                return await answer
        except BaseException:
            if answer.done() and not answer.cancelled() and (held := answer.result()) is not None:
                held.release()
            raise
        finally:
            ticket.answer = None
            for timer in timers:
                timer.cancel()
            self._share.give_back(tenant, 1)
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                self.look()

    def look(self) -> None:
        """Gives places to the waiting after a change, as long as one of them gets one."""
        servers = self._servers()
        for ticket in [each for each in self._waiting if not any(map(each.may_have, servers))]:
            self._answer(ticket, None)
        while self._serve():
            pass

    def _serve(self) -> bool:
        """Gives a place to the first waiting ticket for which there is one; false where there is none."""
        for stand, servers in self._firsts(self._stands(self._waiting)):
            if (held := self._give(stand.ticket, servers, stand.home)) is not None:
                self._answer(stand.ticket, held)
                return True
        return False

    def _answer(self, ticket: Ticket, held: Held | None) -> None:
        self._waiting.discard(ticket)
        if ticket.answer is not None and not ticket.answer.done():
            ticket.answer.set_result(held)

    def _widen(self, ticket: Ticket, reach: Reach) -> None:
        ticket.reach = reach
        if reach is Reach.ANY:
            ticket.late = next(self._numbers)
        if ticket in self._waiting:
            self.look()

    def _stands(self, tickets: Iterable[Ticket]) -> Iterator[_Stand]:
        """The stands of tickets: for home, and for all servers once one has waited long enough."""
        for ticket in tickets:
            if ticket.answer is not None and ticket.answer.done():
                continue
            order = not ticket.begun, ticket.priority, self._under_way.get(ticket.need.tenant, 0)
            home = ticket.home.server if ticket.home and ticket.home.server.lives == ticket.home.lives else None
            yield _Stand(False, order, ticket.number, ticket, home)
            if ticket.home is not None and ticket.reach > Reach.OWN:
                yield _Stand(ticket.reach is Reach.IDLE, order, ticket.late, ticket, None)

    def _firsts(self, stands: Iterable[_Stand]) -> Iterator[tuple[_Stand, list[EngineServer]]]:
        """The stands in order, each with the servers for which no other goes before it."""
        servers = self._servers()
        left = list(servers)
        for stand in sorted(stands):
            its = [server for server in left if stand.ticket.may_have(server)]
            home = stand.home
            if home is not None and home in servers and stand.ticket.may_have(home):
                if home not in left:
                    continue
                taken = [home]
            else:
                stand, taken = stand._replace(home=None), its
            if its:
                yield stand, its
            left = [server for server in left if server not in taken]
            if not left:
                return

    def began(self, tenant: str, tokens: int) -> None:
        self._under_way[tenant] += tokens
        self._rate.take(tokens)

    def ended(self, tenant: str, tokens: int, sampled: int) -> None:
        """A generation of a tenant has ended, which had so many, of which so many were `sampled`."""
        self._under_way[tenant] -= tokens
        if not self._under_way[tenant]:
            del self._under_way[tenant]
        self._rate.free(tokens)
        if sampled:
            self._expected += (sampled - self._expected) / MEAN_OF
        self.look()

    def seconds(self, need: Need) -> int:
        """In how many seconds there may be room for one more, behind all that wait."""
        return self._rate.seconds_for(need.tokens + sum(each.need.tokens for each in self._waiting))

    def _several(self) -> bool:
        return len(self._under_way.keys() | {each.need.tenant for each in self._waiting}) > 1
