"""Engines that say how many generations they have under way. The port does not: tests of aborts alone ask for it."""

from typing import Protocol

from service.engine import port
from service.engine.port import Between, Generation, Take
from service.features.demo.engine import DemoEngine
from service.features.proxy.passing import PassingEngine
from service.features.vllm_local.local import VllmLocalEngine


class Engine(port.Engine, Protocol):
    """An engine under test."""

    @property
    def running(self) -> int:
        """How many generations are under way."""
        ...


class WatchedDemo(DemoEngine):
    """The demo engine; a generation is under way until its generator has let go of everything."""

    running = 0

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        self.running += 1
        try:
            await super().sample(generation, take, between)
        finally:
            self.running -= 1


class WatchedHttp(PassingEngine):
    """Servers, with what each of them counts."""

    @property
    def running(self) -> int:
        """What choosing a server goes by."""
        return sum(server.running for server in self._servers)


class WatchedLocal(VllmLocalEngine):
    """vLLM in this process."""

    @property
    def running(self) -> int:
        return len(self._under_way)
