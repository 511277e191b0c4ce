"""Conversations with a name in tests: begun, added to and read in one call each."""

from collections.abc import Sequence

from store.history.conversations import Conversations, by_hand
from tests.support.store.sample import TENANT, turn

SECONDS = 600.0
SHOWN = b'{"metadata":{}}'


async def begun(conversations: Conversations, *, text: str = "", tenant: str = TENANT) -> str:
    """A new conversation, with a first message if there is a text."""
    id = conversations.new_id()
    first = conversations.new_turn_id(id)
    root = turn(first, text=text) if text else by_hand(first, None, ())
    await conversations.create(tenant, id, root, SHOWN)
    return id


async def add(conversations: Conversations, id: str, *texts: str) -> list[str]:
    """Add turns to a conversation, each by a run of its own; their ids."""
    made: list[str] = []
    for text in texts:
        await conversations.hold(TENANT, id, text, SECONDS)
        tip = await tip_of(conversations, id)
        made.append(conversations.history.new_id(tip))
        await conversations.advance(TENANT, id, turn(made[-1], tip, text=text), hold=text)
    return made


async def tip_of(conversations: Conversations, id: str) -> str:
    """The id of the turn at which a conversation stands."""
    return str((await conversations.chain(TENANT, id)).tip)


async def words(conversations: Conversations, id: str) -> Sequence[str]:
    """What was said in a conversation."""
    chain = await conversations.chain(TENANT, id)
    return [message.tokens.rstrip(b"\0").decode() for message in chain.messages()]
