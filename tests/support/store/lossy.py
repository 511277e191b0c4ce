"""A server whose every first reply is lost: each command is carried out, and then sent once more."""

from typing import Any

from store.redis.connection import Argument, Operation


class LossyOperation(Operation):
    """Carries out each command, loses the reply, and answers the repeat. An error reply is never lost."""

    async def command(self, *args: Argument, at: Argument | None = None) -> Any:
        await super().command(*args, at=at)
        return await super().command(*args, at=at)
