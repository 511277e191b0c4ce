"""fakeredis as a server: a third implementation for the model's test, in this process.

It lacks two things that the store relies on, and that every real server has: MEMORY USAGE, which here is the same for
every key, and the flags in a script's first line, which are left out.
"""

import threading
from collections.abc import Iterator
from typing import Any

from fakeredis import TcpFakeServer
from fakeredis._commands import Key, command
from fakeredis.commands_mixins.server_mixin import ServerCommandsMixin

from store.redis.connection import Operation
from store.redis.wire import Argument, Command

VALUE_BYTES = 100


@command((Key(),), (bytes,), name="memory usage")
def memory_usage(self: object, key: object, *options: bytes) -> int | None:
    """The same for all keys that there are."""
    return VALUE_BYTES if key else None


ServerCommandsMixin.memory_usage = memory_usage


class FlaglessOperation(Operation):
    """Sends scripts without their flags. They have other names then, so they are sent whole each time."""

    async def row(self, *commands: Command, at: Argument | None = None, ahead: bool = False) -> list[Any]:
        return await super().row(*map(_flagless, commands), at=at, ahead=ahead)


def _flagless(command: Command) -> Command:
    if command[0] != "EVAL":
        return command
    source = str(command[1])
    flags, _, rest = source.partition("\n")
    return ("EVAL", rest if flags.startswith("#!") else source, *command[2:])


def fake_server() -> Iterator[str]:
    """Where a new one listens."""
    with TcpFakeServer(("127.0.0.1", 0), server_type="redis", server_version=(7, 4)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"redis://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
