"""How much the generations under way take of their servers, and who waits until there is room for more.

A generation takes its prompt's tokens and, of the output that it may have, as many as are expected: the mean of the
latest ones. What it samples beyond that counts as it comes. All that it may have would be ten times too much, as few
use what they are allowed, and a server would stand half empty. What prompts have in common counts each time.

Those that wait go by priority, then who has the least under way, then by age. None goes past the first, or a large
prompt would wait for ever. Never decide here what a server has room for.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import count
from time import monotonic

import msgspec

from service.engine.pass_through import Passed
from service.engine.port import EngineOverloaded, Generation
from service.engine.servers.server import Server
from service.rates import Rate
from service.shares import Share

FIRST_EXPECTED = 512.0
"""How many tokens of output are expected before any generation has ended."""

MEAN_OF = 64
"""Of about how many of the latest generations the mean is."""

BYTES_A_TOKEN = 4
"""Of how many bytes of a request that is passed on one token is made."""


class Need(msgspec.Struct, frozen=True):
    """What a generation takes: whose it is, and how many tokens of its prompt and of its output."""

    tenant: str
    prompt: int
    output: int

    @property
    def tokens(self) -> int:
        """All of it."""
        return self.prompt + self.output


class Ticket:
    """A generation that wants a place. `place` gives it one, if there is one now; `hopes` is whether there will be."""

    def __init__(self, number: int, need: Need, priority: int, *, begun: bool) -> None:
        self.number = number
        self.need = need
        self.priority = priority
        self.begun = begun
        self.place: Callable[[], Held | None] = lambda: None
        self.hopes: Callable[[], bool] = lambda: False
        self.deadline: float | None = None
        """Until when it waits, on the loop's clock."""
        self.answer: asyncio.Future[Held | None] | None = None


class Held:
    """What a generation has of a server, until `release`."""

    def __init__(self, server: Server, need: Need, places: int, admission: "Admission") -> None:
        self.server = server
        self._need = need
        self._places = places
        self._admission = admission
        self._tokens = 0
        self._sampled = 0
        server.running += places
        self._take(need.tokens)

    def note(self, tokens: int) -> None:
        """So many were sampled."""
        self._sampled += tokens
        if (more := self._need.prompt + self._sampled - self._tokens) > 0:
            self._take(more)

    def release(self) -> None:
        """It has ended."""
        self.server.running -= self._places
        self.server.tokens -= self._tokens
        self._admission.ended(self._need.tenant, self._tokens, self._sampled)

    def _take(self, tokens: int) -> None:
        self._tokens += tokens
        self.server.tokens += tokens
        self._admission.began(self._need.tenant, tokens)


class Admission:
    """Generations that are under way at an engine's servers, and those that wait, `waiting` at most."""

    def __init__(self, waiting: int, clock: Callable[[], float] = monotonic) -> None:
        self._numbers = count()
        self._waiting: list[Ticket] = []
        self._under_way = Counter[str]()
        """How many tokens of each tenant."""
        self._share = Share(waiting, several=self._several)
        self._rate = Rate(clock)
        self._expected = FIRST_EXPECTED

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def ticket(self, asked: Generation | Passed, context_tokens: int) -> Ticket:
        """What says whose turn it is; it is kept for as long as somebody waits, however often. Nothing takes more than
        the model's context.
        """
        expected = int(self._expected)
        if isinstance(asked, Generation):
            prompt, output, begun, most = len(asked.prompt), asked.sampling.max_tokens, asked.begun, context_tokens
        else:
            prompt = sum(len(memoryview(each)) for each in asked.members.values()) // BYTES_A_TOKEN
            output, begun, most = expected * asked.answers, False, context_tokens * asked.answers
            expected = output
        prompt = min(prompt, most)
        need = Need(asked.tenant, prompt, min(output, expected, most - prompt))
        return Ticket(next(self._numbers), need, asked.priority, begun=begun)

    def first(self, ticket: Ticket) -> bool:
        """Whether nobody who waits goes before it."""
        return all(self._order(ticket) < self._order(each) for each in self._waiting)

    async def wait(self, ticket: Ticket) -> Held | None:
        """The place of one that waits for its turn; None where it should look itself why there will be none. Raises
        EngineOverloaded where too many wait, and TimeoutError once its time is over.
        """
        tenant = ticket.need.tenant
        if not self._share.fits(tenant, 1):
            raise EngineOverloaded(f"{len(self._waiting)} generations wait for room already", self.seconds(ticket.need))
        answer = ticket.answer = asyncio.get_running_loop().create_future()
        self._share.take(tenant, 1)
        self._waiting.append(ticket)
        self.look()
        try:
            async with asyncio.timeout_at(ticket.deadline):
                return await answer
        except BaseException:
            if answer.done() and not answer.cancelled() and (held := answer.result()) is not None:
                held.release()
            raise
        finally:
            self._share.give_back(tenant, 1)
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                self.look()

    def look(self) -> None:
        """Something has changed: give places to those who wait, as long as the first of them gets one."""
        while waiting := [each for each in self._waiting if each.answer and not each.answer.done()]:
            first = min(waiting, key=self._order)
            held = first.place()
            if held is None and first.hopes():
                return
            self._waiting.remove(first)
            assert first.answer is not None
            first.answer.set_result(held)

    def began(self, tenant: str, tokens: int) -> None:
        """A tenant has so many more tokens under way."""
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
        """Whether there is more than one tenant."""
        return len(self._under_way.keys() | {each.need.tenant for each in self._waiting}) > 1

    def _order(self, ticket: Ticket) -> tuple[bool, int, int, int]:
        return not ticket.begun, ticket.priority, self._under_way.get(ticket.need.tenant, 0), ticket.number
