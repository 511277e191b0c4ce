"""Create requests of tenants with keys, as bytes, over a connection that is kept open."""

import asyncio
import json

from bench._harness import HOST
from bench.attacks import ANSWER_SECONDS, request

MODEL = "gpt-oss-20b"


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
