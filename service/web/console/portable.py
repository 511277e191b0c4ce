"""A turn as it leaves a service and comes back: with a seal, so that nobody can have changed it.

    turn      base64 of packed; or where the response was deleted: packed, sealed, as nobody may read that any more
    packed    version | packing | msgpack of what the store has of the turn (store/backup/records.py, store/codec.py)
    seal      the digest of packed, sealed for the tenant (service/responses/seal.py)

Nothing of a turn is read before its seal is. So it comes back only as it was, to the tenant that had it, at a service
with the same HARMONIUM_SEAL_KEYS or the same store.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar

import msgspec

from service.errors import InvalidRequest, invalid_value
from service.responses.seal import Sealer
from service.responses.sealed import MAX_PAYLOAD_BYTES, TooLong, Unsealable
from store import codec
from store.backup.records import Saved

FORMAT = 1
_VERSION = bytes([FORMAT])

TURN = "turn"
DIGEST = "turn digest"
"""The kinds of what is sealed."""

DIGEST_BYTES = 32

PIECE_CHARS = 1 << 18
"""How much base64 is read or written in one go, in a millisecond or less: no other thread runs meanwhile."""

PIECE_BYTES = PIECE_CHARS // 4 * 3

T = TypeVar("T")

_saved = msgspec.msgpack.Decoder(Saved)


class Portable(msgspec.Struct, frozen=True):
    """What brings a turn back. `seal` is None where `turn` is sealed itself."""

    turn: str
    seal: str | None = None


async def portable(sealer: Sealer, turn: Saved) -> Portable:
    """What brings a turn back to whose sealer that is. Raises InvalidRequest for one that is too large, and
    StoreUnavailable.
    """
    return await _worked(turn.payload, lambda: _portable(sealer, turn))


async def read(sealer: Sealer, given: Portable) -> Saved:
    """The turn that comes back. Raises InvalidRequest for one that was changed, or isn't from here, and
    StoreUnavailable.
    """
    return await _worked(len(given.turn), lambda: _read(sealer, given))


async def _worked(size: int, work: Callable[[], T]) -> T:
    """What `work` returns, done by a thread where it takes long."""
    return work() if size <= codec.THREAD_FROM_BYTES else await asyncio.to_thread(work)


def _portable(sealer: Sealer, turn: Saved) -> Portable:
    packed = _VERSION + codec.squeeze(msgspec.msgpack.encode(msgspec.structs.replace(turn, used=0, held=0)))
    if not turn.deleted:
        return Portable(_base64(packed), sealer.seal(DIGEST, _digest(packed)))
    try:
        return Portable(sealer.seal(TURN, packed))
    except TooLong:
        raise InvalidRequest(
            f"The turn '{turn.id}' was deleted, and what later turns know of it is too large to be sealed: it has "
            f"{len(packed)} bytes, at most {MAX_PAYLOAD_BYTES} can be. 'harmonium backup' has it.",
            code="invalid_value",
            param="id",
        ) from None


def _read(sealer: Sealer, given: Portable) -> Saved:
    packed = _sealed(sealer, given.turn) if given.seal is None else _checked(sealer, given.turn, given.seal)
    if packed[:1] != _VERSION:
        raise invalid_value("turn", packed[:1].hex(), "A later release exported it. Import it there.")
    return _saved.decode(codec.unsqueeze(packed[1:]))


def _sealed(sealer: Sealer, turn: str) -> bytes:
    return _opened(sealer, "turn", turn, TURN)


def _checked(sealer: Sealer, turn: str, seal: str) -> bytes:
    """The bytes of a turn whose seal is theirs."""
    digest = _opened(sealer, "seal", seal, DIGEST)
    try:
        packed = _bytes(turn)
    except ValueError:
        raise invalid_value("turn", turn, "It is no base64. Send the line as it was exported.") from None
    if _digest(packed) != digest:  # no secret: who has the seal had the turn
        raise invalid_value("seal", seal, "It is of another turn, or 'turn' was changed. Send the line as exported.")
    return packed


def _base64(packed: bytes) -> str:
    pieces = (packed[at : at + PIECE_BYTES] for at in range(0, len(packed), PIECE_BYTES))
    return "".join(b64encode(piece).decode() for piece in pieces)


def _bytes(base64: str) -> bytes:
    """Raises ValueError."""
    pieces = (base64[at : at + PIECE_CHARS] for at in range(0, len(base64), PIECE_CHARS))
    return b"".join(b64decode(piece, validate=True) for piece in pieces)


def _opened(sealer: Sealer, param: str, text: str, kind: str) -> bytes:
    """The payload of a seal of this kind."""
    try:
        found, payload = sealer.open(text)
    except Unsealable as error:
        raise _foreign(param, text, str(error)) from None
    if found != kind:
        raise _foreign(param, text, "it is the seal of something else")
    return payload


def _foreign(param: str, text: str, reason: str) -> InvalidRequest:
    return invalid_value(
        param,
        text,
        f"The turn can't be imported: {reason}. It comes back to the project that exported it, at a service with the "
        "same store or the same HARMONIUM_SEAL_KEYS.",
    )


def _digest(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=DIGEST_BYTES).digest()
