"""The choice of a server for a generation, and how long it is worth waiting for that one.

Generations of one affinity go to one server as long as that isn't far busier than the others, since its prefix cache
has their beginning. Their home is the server that made the response which they continue, or else the one by
rendezvous hashing. Waiting for it is worth as long as computing its cached prefix anew would take. Never decide here
who is next, or how much room a server has.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from statistics import StatisticsError, linear_regression
from typing import NamedTuple

from cachetools import LRUCache

from service.engine.port import Generation, Passed
from service.engine.servers.server import EngineServer

SLACK = 1.25
"""How many times its even share a server may have before generations go elsewhere than where their prefix is cached."""


CHANCE = 2.0
"""How many times the square root of its even share it may have besides: numbers differ so far by chance alone, and
computing a prefix again for that costs more than it brings."""

LEAST_SHARE = 8
"""A server with no more generations than this isn't busy, however few the others have."""

MAX_WARM = 65_536
"""How many responses' homes are remembered: 20 MB."""

PACED_BY = 64
"""The number of latest generations by which the pace of computing prompts is judged."""

ALONE = 1 / 2
"""The largest part of its time that a generation waits for its home alone."""

APART = 1 / 4
"""The part of its time by which its home's line has to be slower than another before a generation changes over."""


class Home(NamedTuple):
    """The server that has so many `tokens` of a prompt cached, in this one of its lives."""

    server: EngineServer
    lives: int
    tokens: int


class Choosing:
    def __init__(self) -> None:
        self._warm: LRUCache[str, Home] = LRUCache(MAX_WARM)
        """The servers that made the latest responses."""
        self._computed = deque[tuple[int, float]](maxlen=PACED_BY)
        """How many tokens of the latest prompts were computed, and in how many seconds the first one was sampled."""

    def choose(
        self, asked: Generation | Passed, free: Collection[EngineServer], up: Collection[EngineServer]
    ) -> EngineServer:
        """The server for a request: one of the `free` ones (at least one), among all that are `up`."""
        calm = _calm(up, free, lambda server: server.running)
        if (warm := self._warm_for(asked)) and warm.server in calm:
            return warm.server
        if any(server.others_running for server in up):
            calm = _calm(up, free, lambda server: server.running + server.others_running) or calm
        return first(asked.affinity, calm or free)

    def home(self, asked: Generation | Passed, prompt: int, up: Sequence[EngineServer]) -> Home | None:
        """The server that may have the beginning of a prompt of so many tokens cached, if there is one."""
        if len(up) < 2:
            return None
        if warm := self._warm_for(asked):
            return warm._replace(tokens=min(warm.tokens, prompt))
        itself = asked.response if isinstance(asked, Generation) else asked.id
        if asked.affinity in ("", itself):  # nothing was before it
            return None
        server = first(asked.affinity, up)
        return Home(server, server.lives, prompt)

    def patience(self, home: Home | None, wait_seconds: float) -> tuple[float, float]:
        """The part of `wait_seconds` to wait for a home alone, and that before another server's line."""
        alone = 0.0 if home is None else min(self.seconds_to_compute(home.tokens), ALONE * wait_seconds)
        return alone, max(alone, APART * wait_seconds)

    def note_warm(self, generation: Generation, server: EngineServer) -> None:
        if generation.response:
            self._warm[generation.response] = Home(server, server.lives, len(generation.prompt))

    def note_computed(self, tokens: int, seconds: float) -> None:
        self._computed.append((tokens, seconds))

    def seconds_to_compute(self, tokens: int) -> float:
        """The extra seconds for so many more tokens of a prompt, by the latest generations; 0 where they don't say."""
        try:
            return max(0.0, linear_regression(*zip(*self._computed, strict=True)).slope * tokens)
        except (StatisticsError, TypeError):  # there are too few, or all were of one length
            return 0.0

    def _warm_for(self, asked: Generation | Passed) -> Home | None:
        """The server of the response's generation before this one, or of what it continues, if it stayed up since."""
        if isinstance(asked, Passed):
            return None
        found = (self._warm.get(response) for response in (asked.response, asked.continues))
        return next((home for home in found if home is not None and home.server.lives == home.lives), None)


def _calm(
    up: Collection[EngineServer], free: Collection[EngineServer], running: Callable[[EngineServer], int]
) -> list[EngineServer]:
    """The free servers that aren't far busier than the others, by how much is `running` at each."""
    even = (sum(map(running, up)) + 1) / sum(server.weight for server in up)

    def bearable(share: float) -> int:
        return max(LEAST_SHARE, math.ceil(SLACK * share + CHANCE * math.sqrt(share)))

    return [server for server in free if running(server) < bearable(even * server.weight)]


def first(affinity: str, servers: Collection[EngineServer]) -> EngineServer:
    """The server that ranks first for an affinity."""
    return max(servers, key=lambda server: rank(affinity, server.url, server.weight))


def rank(affinity: str, url: str, weight: float = 1.0) -> float:
    """Rendezvous hashing: each affinity ranks the servers, and the loss of one leaves the others' rank alone. The
    highest comes first. A server's share of all affinities is its weight's share of all weights, as the ranks are
    exponential variables with such rates.
    """
    number = int.from_bytes(blake2b(f"{affinity} {url}".encode(), digest_size=8).digest())
    return -weight / math.log((number + 0.5) / 2**64)
