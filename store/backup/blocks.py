"""Blocks: how records become bytes of a file, and how a reader knows that none of them has changed. Does no more than
read and write the file that it is given.

    file    MAGIC, then blocks: one HEADER, any number of TREES and OPEN, one END, and nothing after it
    block   kind (1 byte) | length of the payload (4, little-endian) | checksum (16) | payload

The checksum (BLAKE2b) is of the block's number, its kind and its payload, so a block that is changed, moved or missing
is noticed by itself; END also has the digest of all bytes before it. HEADER and END are plain msgpack, so that anybody
can look at them; the others are one zstd frame each. A conversation may be longer than a block: all but its last are
OPEN.

A reader believes nothing: not the length, not the size that a frame names. Never write a block in place of another: a
writer that goes on with a file that was cut short drops its unfinished end, and appends.
"""

from collections.abc import Iterator
from hashlib import blake2b
from os import SEEK_END
from struct import Struct
from typing import BinaryIO, NamedTuple

import zstandard

from store.errors import BadBackup

MAGIC = b"\x89harmonium\r\n\x1a\n"
"""The first bytes. As in a PNG, they show at once whether line ends were changed on the way."""

HEADER, TREES, OPEN, END = range(1, 5)

BLOCK_BYTES = 256 << 10
"""From this size on, before it is compressed, a block is written, and from twice this size on amid a conversation. A
turn is never cut, so one may be larger."""

MAX_BLOCK_BYTES = 1 << 30
"""The largest block, before it is compressed: more than a server takes as one turn."""

LEVEL = 3
CHECKSUM_BYTES = 16
DIGEST_BYTES = 32

_HEAD = Struct(f"<BI{CHECKSUM_BYTES}s")
_NUMBERED = Struct("<QB")


class Block(NamedTuple):
    """A block: its kind, its payload as it was before it was compressed, and where in the file it ends."""

    kind: int
    payload: bytes
    end: int


class BlockWriter:
    """Appends blocks to a file, and knows its digest."""

    def __init__(self, file: BinaryIO) -> None:
        """`file` is empty."""
        self._file = file
        self._digest = blake2b(digest_size=DIGEST_BYTES)
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self._number = 0
        self._write(MAGIC)

    @classmethod
    def after(cls, reader: "BlockReader", file: BinaryIO) -> "BlockWriter":
        """Goes on behind the last block that the reader read; `file` ends there."""
        writer = cls.__new__(cls)
        writer._file, writer._digest, writer._number = file, reader.running, reader.number
        writer._compressor = zstandard.ZstdCompressor(level=LEVEL)
        return writer

    @property
    def digest(self) -> str:
        """The digest of all that was written."""
        return self._digest.hexdigest()

    def write(self, kind: int, payload: bytes) -> None:
        """Append a block. Raises ValueError for one that no reader takes, OSError."""
        if len(payload) > MAX_BLOCK_BYTES:
            raise ValueError(
                f"a turn of {len(payload):,} bytes is too large for a backup, which takes {MAX_BLOCK_BYTES:,}"
            )
        if kind in (TREES, OPEN):
            payload = self._compressor.compress(payload)
        self._write(_HEAD.pack(kind, len(payload), _checksum(self._number, kind, payload)) + payload)
        self._number += 1

    def _write(self, some: bytes) -> None:
        self._file.write(some)
        self._digest.update(some)


class BlockReader:
    """The blocks of a file, each checked before it is returned."""

    def __init__(self, file: BinaryIO) -> None:
        """Raises BadBackup for a file that is no backup, OSError."""
        self._file = file
        self.running = blake2b(digest_size=DIGEST_BYTES)
        """The digest of all blocks that were read, but for END."""
        self._decompressor = zstandard.ZstdDecompressor()
        self.number = 0
        self._size = file.seek(0, SEEK_END)
        file.seek(0)
        found = file.read(len(MAGIC))
        if found != MAGIC:
            raise BadBackup("it is no backup of harmonium: its first bytes are others")
        self.running.update(found)
        self._at = len(MAGIC)

    def __iter__(self) -> Iterator[Block]:
        """All blocks up to END. Raises BadBackup for what is not whole, OSError."""
        kind = 0
        while kind != END:
            kind, payload = self._next()
            yield Block(kind, payload, self._at)
        if self._file.read(1):
            raise BadBackup(f"it goes on behind its end, at byte {self._at:,}")

    def _next(self) -> tuple[int, bytes]:
        head = self._read(_HEAD.size)
        kind, length, checksum = _HEAD.unpack(head)
        payload = self._read(length) if length <= MAX_BLOCK_BYTES else b""
        if checksum != _checksum(self.number, kind, payload):
            raise BadBackup(f"block {self.number} is damaged, at byte {self._at:,}")
        if (kind == HEADER) != (self.number == 0) or not HEADER <= kind <= END:
            raise BadBackup(f"block {self.number} is of kind {kind}, which can't stand there")
        if kind != END:
            self.running.update(head)
            self.running.update(payload)
        self._at += len(head) + len(payload)
        self.number += 1
        return kind, self._decompressed(payload) if kind in (TREES, OPEN) else payload

    def _read(self, length: int) -> bytes:
        left = self._size - self._file.tell()
        found = self._file.read(length) if length <= left else b""
        if len(found) < length:
            raise BadBackup(f"it was cut short, in block {self.number} at byte {self._at:,}")
        return found

    def _decompressed(self, frame: bytes) -> bytes:
        try:
            size = zstandard.get_frame_parameters(frame).content_size
            if size > MAX_BLOCK_BYTES:  # also where the frame names none
                raise BadBackup(f"block {self.number - 1} has {size:,} bytes, and may have {MAX_BLOCK_BYTES:,}")
            return self._decompressor.decompress(frame)
        except zstandard.ZstdError as error:
            raise BadBackup(f"block {self.number - 1} is no zstd frame: {error}") from error


def _checksum(number: int, kind: int, payload: bytes) -> bytes:
    hashed = blake2b(_NUMBERED.pack(number, kind), digest_size=CHECKSUM_BYTES)
    hashed.update(payload)
    return hashed.digest()
