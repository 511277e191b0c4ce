"""Records: a turn as archives, backups and exports have it, as a value. Pure.

A turn has its content as it was given, JSON and messages, not as the store packs it: so what is archived outlives the
store's formats. Each new member takes a new version of what has it: a release that doesn't know it would drop it.
"""

from hashlib import blake2b
from operator import attrgetter

import msgspec

from store.turn import Messages, Picture, Status, check_pictures, digest_of

WHOLE = 1 << 256
"""Digests of content are sums below this, so that they are the same in any order."""


class ErasedMessages(msgspec.Struct, frozen=True):
    """The number and the bytes of the messages that a turn had added before they were erased."""

    messages: int
    bytes: int


class Saved(msgspec.Struct, frozen=True, tag="turn", omit_defaults=True):
    """A turn: all that the store has of it and can't work out.

    `created` and `used` are µs, `held` the bytes of memory that the server had for it. `digest` is the store's, of the
    turn as it was stored. `response` and `items` are JSON texts, and None of a turn that was deleted and that others
    continue. `background` is the mode of a response in the background, `submission` the digest of its submission.
    `said` and `pictures` are as a turn has them.
    """

    id: str
    status: Status
    created: int
    used: int
    held: int
    digest: str
    messages: Messages = ()
    parent: str | None = None
    response: bytes | None = None
    items: bytes | None = None
    erased: ErasedMessages | None = None
    background: str | None = None
    submission: str | None = None
    said: bytes = b""
    pictures: tuple[Picture, ...] = ()

    @property
    def deleted(self) -> bool:
        """Whether its id is unknown, and only its messages stay."""
        return self.response is None

    @property
    def payload(self) -> int:
        """The bytes of its messages, its response, its items and its pictures."""
        said = sum(message.size for message in self.messages)
        return len(self.response or b"") + len(self.items or b"") + said + self.shown

    @property
    def shown(self) -> int:
        """The bytes of its pictures."""
        return sum(len(picture.data) for picture in self.pictures)

    def check(self) -> None:
        """Raises ValueError for pictures that no turn may have, or with a digest that is not theirs."""
        check_pictures(self.pictures)
        if any(digest_of(picture.data) != picture.digest for picture in self.pictures):
            raise ValueError(f"{self.id} has a picture with the digest of another one")


_encoder = msgspec.msgpack.Encoder()
_raw = msgspec.json.Decoder(msgspec.Raw)

_MESSAGE = attrgetter("role", "tokens", "channel", "recipient", "name", "content_type", "call_id", "item")
"""The fields of a message that are in a digest: a field that a later release adds doesn't change earlier digests."""


def are_json(response: bytes, items: bytes) -> bool:
    """Whether these are the JSON texts of an object and a list, as the service serves them. Nothing is made of them."""
    try:
        for text in (response, items):
            text.decode()
            _raw.decode(text)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, too
        return False
    return response[:1] == b"{" and items[:1] == b"["


def content(tenant: str, turn: Saved) -> int:
    """The digest of a tenant's turn as readers see it, as a number below WHOLE: without its use, and its size; its
    pictures by their digests.
    """
    messages = tuple(map(_MESSAGE, turn.messages))
    pictures = tuple((picture.digest, b"") for picture in turn.pictures)
    erased = turn.erased and {"messages": turn.erased.messages, "bytes": turn.erased.bytes}
    said = msgspec.structs.replace(turn, used=0, held=0, messages=messages, erased=erased, pictures=pictures)
    return int.from_bytes(blake2b(_encoder.encode((tenant, said)), digest_size=32).digest())
