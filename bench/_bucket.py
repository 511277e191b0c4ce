"""The least server that S3's client can put to and get from, in a process of its own: what it costs counts for nobody.

    python -m bench._bucket PORT

It keeps values in memory, by path, and lists nothing. Never use it but to be out of the way.
"""

import asyncio
import re
import sys
from typing import NamedTuple

HEAD_END = b"\r\n\r\n"
WRITTEN = b"Mon, 23 Nov 2026 08:00:00 GMT"
KEY = re.compile(rb"<Key>(.*?)</Key>")


class Kept(NamedTuple):
    """A value and its etag."""

    value: bytes
    etag: bytes


NOTHING = Kept(b"", b'"0"')
MISSING = Kept(b"<Error><Code>NoSuchKey</Code></Error>", NOTHING.etag)
"""The body of a 404, by which S3's client knows that an object store says it."""


class Bucket(asyncio.Protocol):
    """One connection."""

    values: dict[bytes, Kept] = {}
    puts = 0

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
        if verb == b"POST":  # a deletion of many
            keys = KEY.findall(value)
            for key in keys:
                self.values.pop(b"%b/%b" % (path.partition(b"?")[0].rstrip(b"/"), key), None)
            told = b"".join(b"<Deleted><Key>%b</Key></Deleted>" % key for key in keys)
            return answered(b"200 OK", Kept(b"<DeleteResult>%b</DeleteResult>" % told, NOTHING.etag))
        there = self.values.get(path)
        if verb != b"PUT":
            return answered(b"404 Not Found", MISSING) if there is None else answered(b"200 OK", there)
        wanted = head.partition(b"\r\nif-match: ")[2].partition(b"\r\n")[0]
        fits = (there is not None and there.etag == wanted) if wanted else there is None
        if not fits and (wanted or b"\r\nif-none-match: *" in head):
            return answered(b"412 Precondition Failed")
        Bucket.puts += 1
        kept = self.values[path] = Kept(value, b'"%d"' % self.puts)
        return answered(b"200 OK", Kept(b"", kept.etag))


def answered(status: bytes, kept: Kept = NOTHING) -> bytes:
    """An answer as HTTP has it."""
    fields = b"etag: %b\r\nlast-modified: %b\r\ncontent-length: %d" % (kept.etag, WRITTEN, len(kept.value))
    return b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, fields, kept.value)


async def main(port: int) -> None:
    """Serve until the process ends."""
    server = await asyncio.get_running_loop().create_server(Bucket, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
