"""Create requests of tenants with keys, as bytes, over a connection that is kept open."""

import asyncio
import json
from typing import NamedTuple

from bench._harness import HOST

MODEL = "gpt-oss-20b"
ACME, GLOBEX = "k" * 32, "g" * 32
PAUSE_SECONDS = 0.005
ANSWER_SECONDS = 30.0


class Waits(NamedTuple):
    """Milliseconds that requests of one kind took, and how many failed."""

    took: list[float]
    failed: int

    def at(self, share: float) -> float:
        """The time within which such a share of them was answered."""
        return sorted(self.took)[min(int(len(self.took) * share), len(self.took) - 1)] if self.took else float("inf")


def request(method: str, path: str, key: str, body: bytes = b"") -> bytes:
    """A request as bytes."""
    authorization = f"authorization: Bearer {key}\r\n" if key else ""
    head = f"{method} {path} HTTP/1.1\r\nhost: {HOST}\r\n{authorization}content-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def posted(key: str, **body: object) -> bytes:
    """A small create request, with what else is given."""
    return request("POST", "/v1/responses", key, json.dumps({"model": MODEL, "max_output_tokens": 16, **body}).encode())


class Connection:
    """A connection that is kept open, with one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, sent: bytes) -> tuple[int, bytes]:
        """The status of the answer, and its body. Raises OSError, and TimeoutError."""
        try:
            if self._writer is None:
                self._reader, self._writer = await asyncio.open_connection(HOST, self._port)
            self._writer.write(sent)
            async with asyncio.timeout(ANSWER_SECONDS):
                head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
                if b"chunked" in head:
                    return int(head[9:12]), await self._reader.readuntil(b"0\r\n\r\n")
                size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                return int(head[9:12]), await self._reader.readexactly(size)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.close()
            raise ConnectionError("no answer") from error

    def close(self) -> None:
        """Close it; the next request opens another one."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None
