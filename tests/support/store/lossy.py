"""A server whose every first reply is lost: each command is carried out, and then sent once more."""

from typing import Any

from store.redis.connection import Operation
from store.redis.wire import Argument, Command


class LossyOperation(Operation):
    """Carries out each command, loses the reply, and answers the repeat. An error reply is never lost."""

    async def row(self, *commands: Command, at: Argument | None = None, ahead: bool = False) -> list[Any]:
        await super().row(*commands, at=at, ahead=ahead)
        return await super().row(*commands, at=at, ahead=ahead)
