"""The words of a request with its whole history, and who finds out the conversation that they are of.

A conversation is recognised by digests of what it says, of which the store has an index. The core asks for the digests
of a request, and for that of a turn that is stored; it never makes one.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw

from service.api.request import CreateRequest
from service.responses.seal import Sealer

REST_BYTES = 1_048_576
"""The bytes of items that are copied before others get a turn."""

_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Seen(NamedTuple):
    """The words of a request with its whole history."""

    said: bytes
    """The digest of all of it."""
    beginning: str
    """The name of conversations that begin like this, which are in one shard."""
    ends: Sequence[tuple[bytes, int]]
    """The digest at each end of a turn of the model's, and the item with which the next one begins; the last end first.
    """
    items: Sequence[Raw]
    answered: Mapping[int, int]
    """The place among the calls of the one that an item is the output of."""
    claims: int
    """The place of the last item that its client gives as a call that ran here, or as a thought without our seal; -1
    where there is none.
    """
    containers: frozenset[str]
    """The containers in which its client says that code ran: who has the id of one may use it."""
    is_named: bool
    """Whether its user is named, so that nobody else has these words."""

    def rest(self, place: int, calls: Sequence[str]) -> Generator[None, None, Raw]:
        """The items from this one on, behind a conversation whose calls have these ids; a client may have others.
        Yields now and then.
        """
        items: list[bytes] = []
        read = 0
        for number in range(place, len(self.items)):
            raw, call = bytes(self.items[number]), self.answered.get(number, len(calls))
            if call < len(calls):
                read += len(raw)
                if read > REST_BYTES:
                    read = 0
                    yield
                members, id = _members(raw), Raw(msgspec.json.encode(calls[call]))
                raw = raw if members["call_id"] == id else msgspec.json.encode(members | {"call_id": id})
            items.append(raw)
        return Raw(b"[%b]" % b",".join(items))


class Recogniser(NamedTuple):
    """Recognises conversations by what was said in them."""

    see: Callable[[Sealer, CreateRequest, str, str], Generator[None, None, Seen | None]]
    """The words of a request, by the id of its key and the name of the user that a front end's header has. Yields now
    and then; None for one that can't be recognised.
    """
    digest_after: Callable[[bytes, Sequence[msgspec.Struct]], bytes]
    """The digest of a transcript once a response with this output has ended; empty where that can't be recognised."""
