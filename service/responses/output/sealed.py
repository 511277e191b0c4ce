"""The payload inside a seal: a reasoning, or the rest of a compacted conversation, as bytes.

A payload begins with its format version, so that a release refuses one that it can't know. From 0.1.0 on never change
the meaning of a version: add the next one. The sealer (service/responses/seal.py) decides who may read a payload. In
here nothing is secret, and the same value always makes the same bytes.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

import msgspec

from store.turn import Messages, StoredMessage

REASONING = "reasoning"
COMPACTION = "compaction"
"""The kinds of sealed payloads, as the sealer is told them."""

FORMAT = 1
_VERSION = bytes([FORMAT])

MAX_PAYLOAD_BYTES = 768 << 10
"""The most that is sealed at once, in some 5 ms: more than a context of 131,072 tokens, at 4 bytes each."""

MAX_SUMMARY_BYTES = 256 << 10
"""The most of that which a compaction's summary may take; the rest is for the messages that travel with it."""

MAX_KEPT_BYTES = MAX_PAYLOAD_BYTES - MAX_SUMMARY_BYTES - 64
"""The most that those may take (`size_of`): what remains but for the heads of the lists."""

T = TypeVar("T")


class TooLong(ValueError):
    """A payload is longer than MAX_PAYLOAD_BYTES."""


class Unsealable(Exception):
    """A text can't be opened: no seal of this service, another tenant's, forged, cut, or of a later release.

    Its message says no more than that, and is fit to be shown.
    """


class ForeignSeal(Unsealable):
    """The text has not the form of a seal of ours: no key of ours ever opens it."""


class Opener(Protocol):
    """Opens the seals that a client sends back, for one tenant."""

    def open(self, text: str) -> tuple[str, bytes]:
        """The kind and the payload. Raises Unsealable."""
        ...


class SealedCompaction(msgspec.Struct, frozen=True, array_like=True):
    """The basis of a conversation once it was compacted: the summary, and the messages kept word by word.

    `kept` are Harmony messages of the user in their order; empty where the client keeps them itself. `newest` are those
    of any author that came behind all that the summary tells of.
    """

    summary: str
    kept: Messages = ()
    newest: Messages = ()


_reasoning = msgspec.msgpack.Decoder(StoredMessage | str)
_compaction = msgspec.msgpack.Decoder(SealedCompaction)


def reasoning(thought: StoredMessage | str) -> bytes:
    """The payload of a reasoning: the message as it was sampled, or its text where that is all there is."""
    return _VERSION + msgspec.msgpack.encode(thought if isinstance(thought, str) else _bare(thought))


def compaction(summary: str, kept: Sequence[StoredMessage] = (), newest: Sequence[StoredMessage] = ()) -> bytes:
    return _VERSION + msgspec.msgpack.encode((summary, list(map(_bare, kept)), list(map(_bare, newest))))


def size_of(message: StoredMessage) -> int:
    """How many bytes a message takes in the payload of a compaction."""
    return len(msgspec.msgpack.encode(_bare(message)))


def open_reasoning(text: str, opener: Opener) -> StoredMessage | str:
    """The reasoning sealed in `text`. Raises Unsealable, also for a payload of another kind, or of a later release."""
    return _open(text, REASONING, opener, _reasoning)


def open_compaction(text: str, opener: Opener) -> SealedCompaction:
    """The compaction sealed in `text`. Raises as `open_reasoning`."""
    return _open(text, COMPACTION, opener, _compaction)


def _open(text: str, wanted: str, opener: Opener, decoder: msgspec.msgpack.Decoder[T]) -> T:
    kind, payload = opener.open(text)
    if kind != wanted:
        raise Unsealable(f"it is the content of a {kind} item, not of a {wanted} item")
    if payload[:1] != _VERSION:
        raise Unsealable("it was sealed by a later release than the one that answers")
    return decoder.decode(payload[1:])


_bare = attrgetter("role", "tokens", "channel", "recipient", "name", "content_type", "call_id")
"""A message as a payload has it: without the number of its item, which is another one wherever it is read."""
