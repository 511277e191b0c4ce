"""Engines that say how many generations they have under way. The port does not: tests of aborts alone ask for it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from service.engine import port
from service.engine.demo import DemoEngine
from service.engine.port import Chunk, Generation
from service.engine.servers.engine import ServersEngine
from service.engine.vllm.local import VllmLocalEngine


class Engine(port.Engine, Protocol):
    """An engine under test."""

    @property
    def running(self) -> int:
        """How many generations are under way."""
        ...


class WatchedDemo(DemoEngine):
    """The demo engine; a generation is under way until its generator has let go of everything."""

    running = 0

    async def generate(self, generation: Generation) -> AsyncGenerator[Chunk, None]:
        """As the demo engine."""
        self.running += 1
        try:
            async with aclosing(super().generate(generation)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self.running -= 1


class WatchedHttp(ServersEngine):
    """Servers, with what each of them counts."""

    @property
    def running(self) -> int:
        """What choosing a server goes by."""
        return sum(server.running for server in self._servers)


class WatchedLocal(VllmLocalEngine):
    """vLLM in this process."""

    @property
    def running(self) -> int:
        """What closing the engine aborts."""
        return len(self._under_way)
