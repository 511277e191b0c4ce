"""Sealing: payloads that a client keeps for us and gives back, and can neither read nor make.

A reasoning item's encrypted content and a compaction item are sealed for their tenant: another tenant's seal can't be
opened, nor one that was changed. The same payload always gives the same text (AES-SIV, RFC 5297, which needs no nonce),
so that a worker that does a dead one's work again serves the same bytes as before.

    text      TAG | base64url, without padding, of version | key mark | sealed
    sealed    AES-SIV under the tenant's key of kind | 0 | payload; version and mark are authenticated with it
    the key   HKDF-SHA256 of a seal key for the tenant; the mark, its 4 first bytes on another label, says which key

Keys come from HARMONIUM_SEAL_KEYS: the first seals, all open. Without, there is one in the store (store/layout.py).
Never log a payload, a text, or a key.
"""

import asyncio
from base64 import urlsafe_b64encode
from binascii import a2b_base64
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from service.responses.output.emitter import Seal
from service.responses.output.rules import Rules
from service.responses.output.sealed import MAX_PAYLOAD_BYTES, REASONING, ForeignSeal, TooLong, Unsealable
from store.errors import ArchiveUnavailable, StoreUnavailable

TAG = "hs_"
"""The beginning of every seal, so that people recognise one in a log."""

FORMAT = 1
_VERSION = bytes([FORMAT])

MARK_BYTES = 4
SIV_BYTES = 16
_HEAD_BYTES = len(_VERSION) + MARK_BYTES
MAX_KIND_BYTES = 32

MAX_TEXT_CHARS = len(TAG) + (_HEAD_BYTES + SIV_BYTES + MAX_KIND_BYTES + 1 + MAX_PAYLOAD_BYTES) * 4 // 3 + 3
"""The longest text that can be a seal; a longer one isn't decoded."""

_STANDARD = bytes.maketrans(b"-_+/", b"+/!!")
"""From the URL-safe alphabet to the common one, whose own signs are none of ours."""


class _Key(NamedTuple):
    """A tenant's key, and the mark by which a text names it."""

    mark: bytes
    siv: AESSIV


class Sealer:
    """Seals for one tenant and opens the seals made for it. It has no state, and may be used by all tasks at once."""

    def __init__(self, tenant: str, keys: Sequence[bytes]) -> None:
        """The first of `keys` seals for `tenant`, all open. Without keys each use raises StoreUnavailable."""
        self._keys = [_derive(tenant, key) for key in keys]

    def seal(self, kind: str, payload: bytes) -> str:
        """A text that `open` gives `kind` and `payload` for. Raises TooLong beyond MAX_PAYLOAD_BYTES, ValueError
        for a kind that is none.
        """
        name = kind.encode()
        if not 1 <= len(name) <= MAX_KIND_BYTES or b"\0" in name:
            raise ValueError(f"a kind {kind[:MAX_KIND_BYTES]!r} can't be sealed")
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise TooLong(f"{len(payload)} bytes can't be sealed, at most {MAX_PAYLOAD_BYTES} can")
        key = self._known_keys()[0]
        head = _VERSION + key.mark
        sealed = key.siv.encrypt(b"%b\0%b" % (name, payload), [head])
        return TAG + urlsafe_b64encode(head + sealed).decode().rstrip("=")

    def open(self, text: str) -> tuple[str, bytes]:
        """The kind and the payload that were sealed. Raises Unsealable, which says what a client may know."""
        keys = self._known_keys()
        blob = _decode(text)
        head, sealed = blob[:_HEAD_BYTES], blob[_HEAD_BYTES:]
        if head[:1] > _VERSION:
            raise Unsealable("it was sealed by a later release than the one that answers")
        for key in keys:
            if head == _VERSION + key.mark:
                try:
                    kind, _, payload = key.siv.decrypt(sealed, [head]).partition(b"\0")
                except InvalidTag:
                    break
                return kind.decode(), payload
        raise Unsealable("it was not sealed by this service for you, or it was changed")

    def _known_keys(self) -> list[_Key]:
        if not self._keys:
            raise StoreUnavailable("the key for sealing is in the store, which did not answer")
        return self._keys


class Seals:
    """The sealers of a process, by tenant, all under the same keys."""

    def __init__(self, keys: Sequence[str], fetch: Callable[[], Awaitable[bytes]]) -> None:
        """`keys` as set; where there are none, `fetch` gets the one that the store keeps, once for all."""
        self._keys = tuple(key.encode() for key in keys)
        self._fetch = fetch
        self._fetching: asyncio.Task[None] | None = None
        self._sealer = lru_cache(1024)(Sealer)  # to make one anew takes some µs

    async def of(self, tenant: str) -> Sealer:
        """The tenant's sealer. If the store has the key and doesn't answer, or the archive that may have it, it is one
        that raises StoreUnavailable when it is used, and the next call asks again: a request without anything sealed
        needs no key. Calls that come while the key is asked for wait for the same answer.
        """
        if not self._keys:
            if self._fetching is None:
                self._fetching = asyncio.create_task(self._fetch_keys())
            await asyncio.shield(self._fetching)
        return self._sealer(tenant, self._keys) if self._keys else Sealer(tenant, ())

    async def _fetch_keys(self) -> None:
        try:
            self._keys = (await self._fetch(),)
        except (StoreUnavailable, ArchiveUnavailable):
            pass  # it is asked for again
        finally:
            self._fetching = None


def _derive(tenant: str, key: bytes) -> _Key:
    """The key of a tenant, derived from a seal key. The mark tells nothing of the key."""
    mark = HKDF(SHA256(), MARK_BYTES, None, b"harmonium seal mark %d " % FORMAT + tenant.encode()).derive(key)
    # AES-256-SIV takes two keys of 32 bytes
    siv = HKDF(SHA256(), 64, None, b"harmonium seal key %d " % FORMAT + tenant.encode()).derive(key)
    return _Key(mark, AESSIV(siv))


def _decode(text: str) -> bytes:
    """The bytes of a seal's text. Raises Unsealable for a text that can't be one."""
    if not text.startswith(TAG) or len(text) > MAX_TEXT_CHARS or not text.isascii():
        raise ForeignSeal("it is not sealed content of this service")
    body = text[len(TAG) :].encode()
    try:
        blob = a2b_base64(body.translate(_STANDARD) + b"=" * (-len(body) % 4), strict_mode=True)
    except ValueError:
        blob = b""
    last = (len(blob) - 1) // 3 * 3  # written together in base64: only there one blob could be written in two ways
    if len(blob) < _HEAD_BYTES + SIV_BYTES or not body.endswith(urlsafe_b64encode(blob[last:]).rstrip(b"=")):
        raise Unsealable("it is not sealed content of this service, or was cut")
    return blob


async def seal_for(seals: Seals, tenant: str, rules: Rules) -> Seal | None:
    """The function that seals parts of a response; None where none are sealed. Raises StoreUnavailable."""
    if not rules.sealed and not rules.compacting and rules.after_compaction is None:
        return None
    seal = (await seals.of(tenant)).seal
    seal(REASONING, b"")  # where the key can't be had, better now than amid the answer
    return seal
