"""fakeredis as a server: a third implementation for the model's test, in this process.

It lacks what every real server has: MEMORY USAGE, which here is the same for every key; FUNCTION LIST without maps, and
flags of scripts for EVAL, so that it is given the scripts as libraries at its start.
"""

import threading
from collections.abc import Iterator

from fakeredis import TcpFakeServer
from fakeredis._commands import Key, command
from fakeredis.commands_mixins.server_mixin import ServerCommandsMixin
from redis import Redis

from store.redis.scripts import ALL

VALUE_BYTES = 100


@command((Key(),), (bytes,), name="memory usage")
def memory_usage(self: object, key: object, *options: bytes) -> int | None:
    """The same for all keys that there are."""
    return VALUE_BYTES if key else None


ServerCommandsMixin.memory_usage = memory_usage


def fake_server() -> Iterator[str]:
    """Where a new one listens."""
    with TcpFakeServer(("127.0.0.1", 0), server_type="redis", server_version=(7, 4)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"redis://127.0.0.1:{server.server_address[1]}"
        with Redis.from_url(url) as client:
            for script in ALL:
                client.function_load(script.library)
        yield url
        server.shutdown()
        thread.join()
