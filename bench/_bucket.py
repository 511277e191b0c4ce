"""The least server that S3's client can put to and get from, in a process of its own: what it costs counts for nobody.

    python -m bench._bucket PORT

It keeps values in memory, by path, and its only condition is If-None-Match. Never use it but to be out of the way.
"""

import asyncio
import sys

HEAD_END = b"\r\n\r\n"
WRITTEN = b"Mon, 23 Nov 2026 08:00:00 GMT"


class Bucket(asyncio.Protocol):
    """One connection."""

    values: dict[bytes, bytes] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.read = bytearray()

    def data_received(self, data: bytes) -> None:
        self.read += data
        while (end := self.read.find(HEAD_END)) >= 0:
            head = bytes(self.read[:end]).lower()
            size = int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0] or 0)
            whole = end + len(HEAD_END) + size
            if len(self.read) < whole:
                return
            verb, path = bytes(self.read[:end]).split(b" ", 2)[:2]
            self.transport.write(self.answer(verb, path, head, bytes(self.read[whole - size : whole])))
            del self.read[:whole]

    def answer(self, verb: bytes, path: bytes, head: bytes, value: bytes) -> bytes:
        """What a request gets."""
        there = self.values.get(path)
        if verb == b"PUT":
            if there is not None and b"\r\nif-none-match: *" in head:
                return answered(b"412 Precondition Failed", b"")
            self.values[path] = value
            return answered(b"200 OK", b"")
        return answered(b"404 Not Found", b"") if there is None else answered(b"200 OK", there)


def answered(status: bytes, body: bytes) -> bytes:
    """An answer as HTTP has it."""
    fields = b'etag: "1"\r\nlast-modified: %b\r\ncontent-length: %d' % (WRITTEN, len(body))
    return b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, fields, body)


async def main(port: int) -> None:
    """Serve until the process ends."""
    server = await asyncio.get_running_loop().create_server(Bucket, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
