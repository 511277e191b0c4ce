"""Processes that are forked, work on a store, and are killed: `python PROGRAM URL PREFIX SEED AT_ONCE KILLS`.

KILLS of them are killed, AT_ONCE at a time, each at a random moment after it has begun; with KILLS 0 nobody kills them,
and they end with the server. They are forked before there is a connection or an event loop, as Python takes longer to
start than they live.
"""

import asyncio
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable

from store.errors import StoreUnavailable

MAX_LIFE_SECONDS = 0.05
TIMEOUT_SECONDS = 20.0
"""A machine that is busy with killing is slow, and nothing else."""

Work = Callable[[str, str, int, int], Awaitable[None]]
"""What a process does, with a URL, a prefix, a seed, and a pipe to write to once something was stored."""


def say(word: str, id: str, detail: str = "") -> None:
    """Print a line in one piece, whoever else prints to the same pipe."""
    os.write(1, f"{word} {id} {detail}\n".encode())


def main(work: Work) -> None:
    """Fork processes as the command line says, and kill them or wait for their end."""
    url, prefix = sys.argv[1:3]
    seed, at_once, kills = map(int, sys.argv[3:])
    chance = random.Random(seed)
    for first in range(0, kills, at_once):
        some = range(first, min(kills, first + at_once))
        _kill([_fork(work, url, prefix, chance.getrandbits(32)) for _ in some], chance)
    if not kills:
        children = [_fork(work, url, prefix, chance.getrandbits(32)) for _ in range(at_once)]
        statuses = [os.waitpid(child, 0)[1] for child, _ in children]
        assert statuses == [0] * at_once, statuses


def _fork(work: Work, url: str, prefix: str, seed: int) -> tuple[int, int]:
    """A new process that works; its id, and a pipe that has something to read once it has begun."""
    reader, writer = os.pipe()
    if child := os.fork():
        os.close(writer)
        return child, reader
    try:
        asyncio.run(_run(work, url, prefix, seed, writer))
    except* StoreUnavailable:
        say("ended", "-", str(time.time()))
    except* BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


async def _run(work: Work, url: str, prefix: str, seed: int, bell: int) -> None:
    await work(url, prefix, seed, bell)


def _kill(children: list[tuple[int, int]], chance: random.Random) -> None:
    """Kill each a random moment after it has begun."""
    for child, reader in children:
        assert os.read(reader, 1), f"process {child} ended before it had begun"
        time.sleep(chance.uniform(0, MAX_LIFE_SECONDS))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, f"process {child} ended before it was killed"
        os.close(reader)
