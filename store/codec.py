"""Bytes: the encoding of a turn's messages and its response, and how any release reads them back.

    messages blob   1 | msgpack of tuple[StoredMessage, ...]
    response blob   2 | packing | msgpack of (response, items), as it is or in one zstd frame, which names the
                                  dictionary that it needs (store/dictionaries/)

Every blob begins with its format version, so that a release refuses a newer one. From 0.1.0 on never change the
meaning of a version: add the next one, which neither kind of blob has had, and read both. Each new field takes one,
too: an earlier release skips a field at the end of a message, and would encode the message anew without it. A new
version, or another dictionary, takes another layout (store/layout.py).

A record that is written again and again is a map with its `version`: one of a later release is refused as a whole.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast, overload

import msgspec
import zstandard

from store.errors import NewerFormat, UnknownDictionary
from store.turn import Messages, Picture, Turn

FORMAT = 2
"""The version of a response blob, and the newest of any blob."""
MESSAGES_FORMAT = 1
"""The version of a messages blob."""

LEVEL = 3
"""The level of zstd that all compress at: a prepared dictionary is for one level."""

NEWEST = 32_769
"""The dictionary to write with. By zstd's own rules lower numbers are for dictionaries of common use; one of these
takes 2 bytes in a frame, up to 65,535.
"""

SHIPPED = frozenset({NEWEST})
"""The numbers of all dictionaries that were ever shipped. Never change or delete their files: what was written with one
can't be read without it.
"""

NO_DICTIONARY = 0
"""The number by which zstd says that a frame has no dictionary."""

PLAIN = 0
ZSTD = 1
_PLAIN = bytes([PLAIN])
_ZSTD = bytes([ZSTD])

COMPRESS_FROM_BYTES = 512
"""Below this a frame's head and the call cost as much as compression saves."""
COMPRESS_FROM_BYTES_WITH_DICTIONARY = 64
"""The same with a dictionary, which has the common parts."""

THREAD_FROM_BYTES = 131_072
"""From here on a thread does the work: compressing and hashing release the GIL, and take a ms or more."""

DIGEST_BYTES = 16

T = TypeVar("T", bound=msgspec.Struct)

_messages_decoder = msgspec.msgpack.Decoder(Messages)
_response_decoder = msgspec.msgpack.Decoder(tuple[bytes, bytes])


def file_of(number: int) -> Path:
    return Path(__file__).with_name("dictionaries") / f"{number}.zdict"


@cache
def dictionary(number: int) -> zstandard.ZstdCompressionDict:
    """The dictionary with this number, prepared. Raises UnknownDictionary for one of a later release."""
    if number not in SHIPPED:
        raise UnknownDictionary(number)
    made = zstandard.ZstdCompressionDict(file_of(number).read_bytes())
    cast(Any, made).precompute_compress(level=LEVEL)  # of which the types say nothing
    return made


def _dictionary(number: int) -> zstandard.ZstdCompressionDict | None:
    return dictionary(number) if number else None


class _Contexts(threading.local):
    """A thread's zstd contexts by their dictionaries: two threads can't use one at once."""

    def __init__(self) -> None:
        self._compressors: dict[int, zstandard.ZstdCompressor] = {}
        self._decompressors: dict[int, zstandard.ZstdDecompressor] = {}

    def compressor(self, number: int) -> zstandard.ZstdCompressor:
        if number not in self._compressors:
            self._compressors[number] = zstandard.ZstdCompressor(level=LEVEL, dict_data=_dictionary(number))
        return self._compressors[number]

    def decompressor(self, frame: bytes) -> zstandard.ZstdDecompressor:
        """The decompressor of a frame's dictionary. Raises UnknownDictionary, and ZstdError for other bytes."""
        number = zstandard.get_frame_parameters(frame).dict_id
        if number not in self._decompressors:
            self._decompressors[number] = zstandard.ZstdDecompressor(dict_data=_dictionary(number))
        return self._decompressors[number]


_contexts = _Contexts()


class Packed(msgspec.Struct, frozen=True):
    """A turn as it is stored: two blobs, a digest of the content, and its pictures as scripts take them."""

    messages: bytes
    response: bytes
    digest: str
    pictures: bytes = b""


async def pack(turn: Turn) -> Packed:
    if len(turn.response) + len(turn.items) + sum(len(each.data) for each in turn.pictures) > THREAD_FROM_BYTES:
        return await asyncio.to_thread(_pack, turn)
    return _pack(turn)


def _pack(turn: Turn) -> Packed:
    response = encode_response(turn.response, turn.items)
    return Packed(encode_messages(turn.messages), response, digest(turn), encode_pictures(turn.pictures))


def encode_pictures(pictures: Sequence[Picture]) -> bytes:
    """Pictures as lua/pictures.lua takes them: of each its digest in hex, its length in ten digits, and its bytes."""
    return b"".join(b"%b%010d%b" % (each.digest.hex().encode(), len(each.data), each.data) for each in pictures)


def encode_messages(messages: Messages) -> bytes:
    return bytes([MESSAGES_FORMAT]) + msgspec.msgpack.encode(messages)


def decode_messages(blob: bytes) -> Messages:
    """The messages of a blob. Raises NewerFormat, and ValueError and msgspec's errors for other bytes."""
    check_version(blob, MESSAGES_FORMAT)
    return _messages_decoder.decode(blob[1:])


NO_MESSAGES = encode_messages(())
"""The messages blob of a turn whose messages were erased."""


class StoredTurns(Sequence[Messages]):
    """The messages of a chain's turns; blobs are decoded on first use.

    Decoding takes a quarter as long as fetching, and is the CPU's work instead of a wait: so the renderer does it.
    `decoded(at, messages)` is called for each blob, which is then dropped. `omitted` has the places of
    messages to leave out, by the places of their turns. Raises NewerFormat when made, not later.
    """

    def __init__(
        self,
        stored: Sequence[bytes | Messages],
        decoded: Callable[[int, Messages], None] | None = None,
        omitted: Mapping[int, Collection[int]] = MappingProxyType({}),
    ) -> None:
        self._stored: Sequence[bytes | Messages] = stored
        self._packed = [at for at, each in enumerate(stored) if isinstance(each, bytes)]
        """The places of the turns that are still blobs."""
        for at in self._packed:
            check_version(cast(bytes, stored[at]), MESSAGES_FORMAT)
        self._hears = decoded
        self._omitted = omitted

    @property
    def decoded(self) -> bool:
        """Whether no turn is a blob any more."""
        return not self._packed

    def alone(self, at: int) -> Messages:
        """The messages of one turn, while the others stay as they are."""
        each = self._stored[at]
        return _messages_decoder.decode(each[1:]) if isinstance(each, bytes) else each

    def without(self, omitted: Mapping[int, Collection[int]]) -> "StoredTurns":
        return StoredTurns(self._stored, self._hears, omitted)

    @cached_property
    def _turns(self) -> tuple[Messages, ...]:
        turns = cast(list[Messages], list(self._stored))
        for at in self._packed:
            turns[at] = decoded = self.alone(at)
            if self._hears is not None:
                self._hears(at, decoded)
        for at, places in self._omitted.items():
            turns[at] = tuple(message for place, message in enumerate(turns[at]) if place not in places)
        self._stored, self._packed, self._hears = tuple(turns), [], None
        return self._stored

    @overload
    def __getitem__(self, index: int) -> Messages: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Messages, ...]: ...
    def __getitem__(self, index: int | slice) -> Messages | tuple[Messages, ...]:
        return self._turns[index]

    def __iter__(self) -> Iterator[Messages]:
        return iter(self._turns)

    def __len__(self) -> int:
        return len(self._stored)

    def __eq__(self, other: object) -> bool:
        return self._turns == (other._turns if isinstance(other, StoredTurns) else other)

    def __hash__(self) -> int:
        return hash(self._turns)


def encode_response(response: bytes, items: bytes) -> bytes:
    """The response blob of a turn: both JSON texts, compressed together with the dictionary where that pays."""
    return bytes([FORMAT]) + squeeze(msgspec.msgpack.encode((response, items)), NEWEST)


def decode_response(blob: bytes) -> tuple[bytes, bytes]:
    """(response, items), both JSON as they were given. Raises NewerFormat."""
    check_version(blob, FORMAT)
    return _response_decoder.decode(unsqueeze(blob[1:]))


def response_size(blob: bytes) -> int:
    """The bytes of a response blob once decompressed, as its frame says; those of the blob where it doesn't say."""
    known = squeezed_size(blob[1:])
    return known if known >= 0 else len(blob)


def squeezed_size(squeezed: bytes) -> int:
    """The bytes that `unsqueeze` makes, as the frame says; -1 where there is no frame, or it doesn't say."""
    return zstandard.frame_content_size(squeezed[1:]) if squeezed[:1] == _ZSTD else -1


async def unpack_response(blob: bytes) -> tuple[bytes, bytes]:
    """`decode_response`, in a thread where it takes long. Raises NewerFormat."""
    if len(blob) > THREAD_FROM_BYTES:
        return await asyncio.to_thread(decode_response, blob)
    return decode_response(blob)


def squeeze(packed: bytes, dictionary: int = NO_DICTIONARY) -> bytes:
    """The packing, and the bytes: in one zstd frame where that pays, with the `dictionary` of a number."""
    if len(packed) > (COMPRESS_FROM_BYTES_WITH_DICTIONARY if dictionary else COMPRESS_FROM_BYTES):
        frame = _contexts.compressor(dictionary).compress(packed)
        if len(frame) < len(packed):
            return _ZSTD + frame
    return _PLAIN + packed


def unsqueeze(squeezed: bytes) -> bytes:
    """The bytes that `squeeze` was given. Raises UnknownDictionary."""
    packed = squeezed[1:]
    return _contexts.decompressor(packed).decompress(packed) if squeezed[0] == ZSTD else packed


def digest(turn: Turn) -> str:
    """32 hex digits that tell a retried append from a conflicting one."""
    content = (turn.parent, turn.status, turn.messages, turn.response, turn.items)
    if turn.pictures:
        content += (tuple(each.digest for each in turn.pictures),)
    return blake2b(msgspec.msgpack.encode(content), digest_size=DIGEST_BYTES).hexdigest()


class _Versioned(msgspec.Struct):
    version: int = 1


def decode_record(record: bytes, kind: type[T], known: int, decode: Callable[..., Any] = msgspec.msgpack.decode) -> T:
    """The record in some bytes, with the `known` version, so that it is written again in that one. Raises NewerFormat
    for a later one, and msgspec's errors.
    """
    version = decode(record, type=_Versioned).version
    if version > known:
        raise NewerFormat(version)
    return msgspec.structs.replace(decode(record, type=kind), version=known)


def check_version(blob: bytes, known: int) -> None:
    """Refuse a blob of a later format than the `known` one (NewerFormat), or of an earlier one (ValueError)."""
    version = blob[0] if blob else 0
    if version > known:
        raise NewerFormat(version)
    if version < known:
        raise ValueError(f"a blob of {len(blob)} bytes with version {version} was not written by this store")
