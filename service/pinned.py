"""Connections to addresses that were checked before, even if a name resolves to others meanwhile. It needs an HTTP
client."""

import socket
from collections.abc import Sequence

from aiohttp.abc import AbstractResolver, ResolveResult


class Pinned(AbstractResolver):
    """Resolves every host to the same addresses, those that were checked."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses, with this port."""
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""
