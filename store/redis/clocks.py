"""The servers' clocks, so that a call can name the moment after which nobody waits for it any more.

A server that stood still may carry out a command that its client gave up: the command is in the server's buffer. So a
script that hands out or makes something gets the moment at which its caller gives up, on the server's own clock, and
does nothing later. Replies give an estimate of that clock: it was at least that late when the reply arrived. The
estimate errs towards too early a moment, by the time that the reply travelled at most.

Never ask for the time where a reply has just given it.
"""

import asyncio
from collections.abc import Awaitable, Callable

from store.errors import StoreUnavailable
from store.keys import ShardKeys, TurnKeys
from store.redis.connection import Argument, Operation, Server
from store.redis.scripts import Reply

KNOWN_SECONDS = 30.0
"""How long an estimate of a server's clock is used, before the server is asked again."""

TRIES = 3
"""How often a call is sent that a server calls late although its caller waits: its clock may have been changed."""


class Clocks:
    """The clocks of the servers that have the shards, each estimated by itself."""

    def __init__(self, server: Server) -> None:
        """Clocks without an estimate yet."""
        self._server = server
        self._ahead: dict[ShardKeys, tuple[float, float]] = {}
        """By shard, the least seconds by which its clock is ahead of the loop's, and the time of that estimate."""

    @property
    def until(self) -> float:
        """The time by the loop's clock when an operation that begins now is given up."""
        return asyncio.get_running_loop().time() + self._server.timeout_seconds

    def bound(self, until: float, script: Callable[..., Awaitable[Reply]]) -> Callable[..., Awaitable[Reply]]:
        """A script about a turn or a shard that gets the moment `until`, on the server's clock in ms, as `not_after`.

        Its reply is `late` only where the operation is, too. It raises StoreUnavailable where the server repeats `late`
        TRIES times, and redis-py's errors.
        """

        async def run(operation: Operation, about: TurnKeys | ShardKeys, **values: Argument) -> Reply:
            shard = about.shard if isinstance(about, TurnKeys) else about
            for _ in range(TRIES):
                moment = await self._moment(operation, shard, until)
                reply = await script(operation, about, not_after=moment, **values)
                if reply[0] != b"late":
                    return reply
                self.note(shard, int(reply[1]))
            raise StoreUnavailable("the server's clock runs away from what it says")

        return run

    def note(self, shard: ShardKeys, ms: int) -> None:
        """Note the server's clock, which a reply that has just arrived gives."""
        now = asyncio.get_running_loop().time()
        self._ahead[shard] = ms / 1000 - now, now

    async def _moment(self, operation: Operation, shard: ShardKeys, until: float) -> int:
        """The time by the server's clock, in ms, at a time of the loop's, or a little before."""
        ahead, learned = self._ahead.get(shard, (0.0, -KNOWN_SECONDS))
        if asyncio.get_running_loop().time() - learned >= KNOWN_SECONDS:
            seconds, microseconds = await operation.command("TIME", at=shard.clock)
            self.note(shard, int(seconds) * 1000 + int(microseconds) // 1000)
            ahead, _ = self._ahead[shard]
        return int(1000 * (until + ahead))
