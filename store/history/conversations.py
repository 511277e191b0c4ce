"""Conversations that have a name: each points to its newest turn, its tip, and moves with each turn that it gets.

A conversation is a branch in the sense of git: it holds no messages, so deleting it deletes no response, and others
may continue its tip without changing it. One run at a time may add to it and holds it meanwhile; a hold that is not
renewed ends by itself. Never move one but together with the turn that it moves to (append.lua).
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial

from store import codec
from store.errors import ConversationHeld, ConversationNotFound, NotFound, ParentNotFound
from store.history.append import Addition, with_room
from store.history.caps import EVICT_BATCH
from store.history.delete import release
from store.history.history import ConversationHistoryStore
from store.history.listing import Listing
from store.ids import with_mark
from store.keys import BY_HAND_MARK, CONVERSATION_MARK, CONVERSATION_PREFIX, TurnKeys, conversation_id, id_of
from store.redis import scripts
from store.turn import Chain, Messages, Status, Turn

NO_RESPONSE = b"{}"
"""The response of a turn that was added by hand."""


def by_hand(id: str, parent: str | None, messages: Messages, items: bytes = b"[]") -> Turn:
    """A turn that is no response: items, and the messages that a prompt shows of them. `id` is a `new_turn_id`."""
    return Turn(id, parent, Status.COMPLETED, messages, NO_RESPONSE, items)


class Conversations:
    """Begin, show, hold, move and delete conversations."""

    def __init__(self, history: ConversationHistoryStore) -> None:
        self.history = history
        self._keyspace = history.keyspace

    def new_id(self, source: str | None = None) -> str:
        """A new conversation's id, of a fork in the tree of its `source`. Raises NotFound, ConversationNotFound."""
        beside = "" if source is None else self._source("-", source).digits
        return conversation_id(self.history.ids.new(beside, mark=CONVERSATION_MARK))

    def new_turn_id(self, id: str, mark: str = BY_HAND_MARK) -> str:
        """An id for a turn that is added by hand to a conversation; no response has it. Raises ConversationNotFound."""
        return id_of(self.history.ids.new(self._keys("-", id).digits, mark=mark))

    def first_turn_id(self, id: str) -> str:
        """The id of the turn with which a conversation begins: the same for each try. Raises ConversationNotFound."""
        return id_of(with_mark(self._keys("-", id).digits, BY_HAND_MARK))

    async def create(self, tenant: str, id: str, first: Turn, shown: bytes, *, pin: str = "") -> None:
        """Begin a conversation with a turn of `first_turn_id`: a root, or of a fork one that continues the tip of
        `branch`, whose `pin` is released. `shown` is JSON that the store never reads. Raises the errors of `append`.
        """
        blob = codec.encode_response(shown, b"[]")
        await self.history.append(tenant, first, pin=pin, conversation=self._keys(tenant, id).digits, shown=blob)

    async def branch(self, tenant: str, source: str, pin: str) -> Chain:
        """The chain that a fork of a conversation or of a response begins with, whose tip gets this `pin`; pass it to
        `create`, or to `unpin`. The conversation may be held.

        Raises ConversationNotFound, NotFound, NotContinuable, ChainTooLong, StoreUnavailable.
        """
        keys = self._source(tenant, source)
        try:
            return await self.history.chain(tenant, source, pin=pin, keys=keys)
        except ParentNotFound as error:
            is_conversation = source.startswith(CONVERSATION_PREFIX)
            raise (ConversationNotFound if is_conversation else NotFound)(source) from error

    async def advance(self, tenant: str, id: str, turn: Turn, *, hold: str) -> None:
        """Store a turn that continues the tip, move the conversation to it, and release the hold.

        Raises ConversationNotFound where it was deleted, ConversationMoved where the hold was over and another run came
        in between, and the errors of `append`; nothing is stored then.
        """
        await self.history.append(tenant, turn, pin=hold, conversation=self._keys(tenant, id).digits)

    async def get(self, tenant: str, id: str) -> bytes:
        """The JSON of a conversation; notes its use. Raises ConversationNotFound, StoreUnavailable."""
        with _found(id):
            return (await self.history.find(tenant, id, keys=self._keys(tenant, id))).response

    async def amend(self, tenant: str, id: str, shown: bytes) -> None:
        """Change the JSON of a conversation. Raises ConversationNotFound, StoreFull, StoreUnavailable."""
        keys, caps = self._keys(tenant, id), self.history.caps
        blob = codec.encode_response(shown, b"[]")
        itself = Turn(id_of(keys.digits), id_of(keys.digits), Status.COMPLETED, (), shown)
        addition = Addition(keys, keys.digits, itself, codec.Packed(codec.NO_MESSAGES, blob, ""), "")
        change = partial(
            scripts.amend, parent=keys.digits, room=addition.room, idle_us=caps.idle_us, budget=EVICT_BATCH,
            response_blob=blob,
        )  # fmt: skip
        removed = self.history.note_removed
        with _found(id):
            await self.history.at_hand(
                keys,
                lambda: self.history.await_safety(
                    lambda operation: with_room(operation, addition, caps, change, removed), keys, digest=""
                ),
            )

    def listing(self, tenant: str, *, after: str | None = None, ascending: bool = False) -> Listing:
        """A tenant's conversations in the order in which they began, the newest first if not `ascending`; with `after`
        those behind that one. Reading it raises ConversationNotFound where that isn't there, StoreUnavailable.
        """
        return Listing(self.history, tenant, after=after, ascending=ascending)

    async def delete(self, tenant: str, id: str) -> None:
        """Delete a conversation; the turns that it had stay. Raises ConversationNotFound, StoreUnavailable."""
        with _found(id):
            await self.history.forget(tenant, id, keys=self._keys(tenant, id))

    async def hold(self, tenant: str, id: str, hold: str, seconds: float) -> None:
        """Hold a conversation with the token `hold` for so many seconds from now on. A second call renews the hold.

        Raises ConversationHeld while another run does, ConversationNotFound, StoreUnavailable.
        """
        keys, hold_ms = self._keys(tenant, id), max(1, round(seconds * 1000))

        async def attempt() -> None:
            (word,) = await self.history.server.run(
                scripts.hold, keys, token=hold, hold_ms=hold_ms, idle_us=self.history.caps.idle_us
            )
            if word == b"missing":
                raise ConversationNotFound(id)
            if word == b"held":
                raise ConversationHeld(id)

        await self.history.at_hand(keys, attempt)

    async def chain(self, tenant: str, id: str) -> Chain:
        """The chain of a conversation's tip; notes its use. The hold keeps it, too.

        Raises ConversationNotFound, ChainTooLong where nothing can be added any more, StoreUnavailable.
        """
        with _found(id):
            return await self.history.chain(tenant, id, keys=self._keys(tenant, id))

    async def release(self, tenant: str, id: str, hold: str) -> None:
        """Release a conversation, or a fork's source. Raises ConversationNotFound, NotFound, StoreUnavailable."""
        await self.history.server.run(release, self._source(tenant, id), hold)

    async def lineage(self, tenant: str, id: str) -> Sequence[str]:
        """The ids of a conversation's turns, oldest first. Raises ConversationNotFound, StoreUnavailable."""
        with _found(id):
            return (await self.history.lineage(tenant, id, keys=self._keys(tenant, id)))[:-1]

    def _keys(self, tenant: str, id: str) -> TurnKeys:
        return self._keyspace.conversation(tenant, id)

    def _source(self, tenant: str, id: str) -> TurnKeys:
        if id.startswith(CONVERSATION_PREFIX):
            return self._keys(tenant, id)
        return self._keyspace.response(tenant, id)


@contextmanager
def _found(id: str) -> Generator[None]:
    try:
        yield
    except NotFound as error:
        raise ConversationNotFound(id) from error
