"""A server whose every first reply is lost: each command is carried out, and then sent once more."""

from typing import Any

from redis import exceptions as redis_errors
from redis.backoff import NoBackoff

from store.redis.connection import Argument, Operation


class LossyOperation(Operation):
    """Carries out each command, loses the reply, and answers the repeat. An error reply is never lost."""

    backoff = NoBackoff()
    _lost = False

    async def _attempt(self, args: tuple[Argument, ...], at: Argument | None) -> Any:
        reply = await super()._attempt(args, at)
        self._lost = not self._lost
        if self._lost:
            raise redis_errors.ConnectionError("the reply was lost")
        return reply
