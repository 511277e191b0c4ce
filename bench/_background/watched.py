"""A worker around a demo engine that notes when each generation was over: what bench/background.py cancels.

    python -m bench._background.watched FILE

works until a signal, with the settings of the environment. It is `harmonium worker` but for the engine, and writes a
line `ID SECONDS` into FILE for each generation that has ended, or was aborted, by the clock of time.monotonic.
"""

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

import uvloop

from service.background.tasks import Background
from service.engine.port import MODEL_CREATED, Between, Generation, ModelCard, Take
from service.features.demo.engine import DemoEngine
from service.process import DEMO_CONTEXT_TOKENS, close_service, load_settings, open_service
from service.settings.engines import DEMO_MODEL


class WatchedEngine(DemoEngine):
    """A demo engine that writes down when it stops working for anybody."""

    def __init__(self, tokens_per_second: float, notes: TextIO) -> None:
        super().__init__(ModelCard(DEMO_MODEL, MODEL_CREATED, DEMO_CONTEXT_TOKENS), tokens_per_second)
        self._notes = notes

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        """Sample as ever."""
        try:
            await super().sample(generation, take, between)
        finally:
            self._notes.write(f"{generation.id} {time.monotonic()}\n")
            self._notes.flush()


async def work(notes: TextIO) -> None:
    """Work on background responses until a signal."""
    settings = load_settings()
    service = open_service(settings, WatchedEngine(settings.demo_tokens_per_second, notes))
    await service.engine.start()
    background = Background(service, works=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, background.stop)
    try:
        async with await asyncio.start_server(lambda *_: None, settings.host, settings.port):  # says that it has begun
            await background.run()
    finally:
        await close_service(service)


if __name__ == "__main__":
    with Path(sys.argv[1]).open("w") as file:
        uvloop.run(work(file))
