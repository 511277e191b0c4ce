"""Engines that say how many generations they have under way. The port does not: tests of aborts alone ask for it."""

from typing import Protocol

from service.engine import port
from service.engine.servers.engine import ServersEngine


class Engine(port.Engine, Protocol):
    """An engine under test."""

    @property
    def running(self) -> int:
        """How many generations are under way."""
        ...


class WatchedHttp(ServersEngine):
    """Servers, with what each of them counts."""

    @property
    def running(self) -> int:
        """What choosing a server goes by."""
        return sum(server.running for server in self._servers)
