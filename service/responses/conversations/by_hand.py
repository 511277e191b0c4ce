"""Conversations as their routes change them: begun, renamed, and items added to them by hand.

Items that nobody's response has are a turn of their own. They are rendered as input is, so that a prompt of the
conversation begins with them as it would if they had been sent with it. Nothing here asks the engine.
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from service import logs
from service.api import ids
from service.api.conversation import MAX_ITEMS, Conversation, New, decode_conversation
from service.api.decoding import decode, decode_list, decoder_of
from service.api.input.gathered import Gathered
from service.api.input.items import InputItem
from service.api.input.read import OF_ONE_REQUEST, identify, read_input, resolve
from service.errors import InvalidRequest, invalid_value, missing
from service.harmony.tokens import RunTooLong, TooManyTokens
from service.responses.conversations.joining import joining
from service.responses.prompt.build import SHORTENED_TOKENS
from service.responses.prompt.drafts import Conversion
from service.responses.references import stored_items
from service.responses.refusals import fork_refusal
from service.responses.rules import Rules
from service.responses.service import Service
from service.steps import in_steps
from store.errors import NotContinuable, NotFound, StoreError, StoreUnconfirmed, TurnTooLarge
from store.history.conversations import by_hand
from store.turn import Chain, Messages, Turn

logger = logging.getLogger(__name__)


class _Id(msgspec.Struct):
    id: str | None = None


_ID = decoder_of(_Id)


async def begin(service: Service, tenant: str, new: New) -> Conversation:
    """Begin a conversation with some items, or none, or with all that another one has. Raises ApiError, StoreError."""
    _refuse_another_type(new.items)
    if new.fork_of is None:
        return await _begin(service, tenant, service.conversations.new_id(), new, Chain())
    try:
        return await _fork(service, tenant, new, new.fork_of)
    except (NotFound, NotContinuable, TurnTooLarge) as error:
        raise fork_refusal(error) from error


async def _fork(service: Service, tenant: str, new: New, source: str) -> Conversation:
    """Begin a conversation below the newest turn of another one, or below a response. Raises ApiError, StoreError."""
    conversations = service.conversations
    id, chain = conversations.new_id(source), await conversations.branch(tenant, source)
    made = False
    try:
        await in_steps(_refuse_items_of(chain.ids, new.items))
        shown = await _begin(service, tenant, id, new, chain)
        made = True
    finally:
        if not made:
            with suppress(StoreError):  # it stops counting by itself
                await service.store.unpin(tenant, str(chain.tip), str(chain.pin))
    return shown


async def _begin(service: Service, tenant: str, id: str, new: New, chain: Chain) -> Conversation:
    shown = Conversation(id, int(service.clock()), new.metadata)
    first, _ = await _by_hand(service, tenant, service.conversations.new_turn_id(id), new.items, chain)
    with _told_by_the_log(id):
        await service.conversations.create(tenant, id, first, msgspec.json.encode(shown), pin=chain.pin or "")
    return shown


async def change(service: Service, tenant: str, id: str, metadata: dict[str, str]) -> Conversation:
    """Give a conversation other metadata. Raises StoreError."""
    before = decode_conversation(await service.conversations.get(tenant, id))
    shown = msgspec.structs.replace(before, metadata=metadata)
    await service.conversations.amend(tenant, id, msgspec.json.encode(shown))
    return shown


async def add_items(service: Service, tenant: str, id: str, sent: msgspec.Raw) -> Sequence[InputItem]:
    """Add items, which are still JSON, to a conversation; as they are listed.

    Raises InvalidRequest, ConversationHeld while a response of it is made, StoreError.
    """
    _refuse_another_type(sent)
    async with joining(service, tenant, id) as joined:
        chain = await service.conversations.chain(tenant, id)
        await in_steps(_refuse_items_of(chain.ids, sent))
        turn, items = await _by_hand(service, tenant, service.conversations.new_turn_id(id), sent, chain)
        if not items:
            raise missing("items", f"Give 1 to {MAX_ITEMS} of them.")
        with _told_by_the_log(id):
            await joined.add(turn)
    return items


@contextmanager
def _told_by_the_log(id: str) -> Generator[None]:
    """The log says what is stored and not as safe as it should be: who is refused, asks again and has it twice."""
    try:
        yield
    except StoreUnconfirmed as lack:
        message = "conversation not as safe as it should be"
        logs.event(logger, logging.ERROR, message, conversation_id=id, reason=str(lack))


def _refuse_items_of(turns: Sequence[str], sent: msgspec.Raw) -> Generator[None, None, None]:
    """Raise InvalidRequest for an item that one of these turns has already, yielding between long ones."""
    for place, raw in enumerate(decode_list(sent, MAX_ITEMS, "items")):
        yield
        try:
            item_id = decode(raw, _ID).id
        except InvalidRequest:
            continue  # whoever reads it, refuses it in better words
        if item_id is not None and ids.response_of(item_id) in turns:
            raise InvalidRequest(
                f"Item '{item_id}' at items[{place}] is in the conversation already.",
                code="item_already_in_conversation",
                param="items",
            )


def _refuse_another_type(sent: msgspec.Raw) -> None:
    """Raise InvalidRequest for what is neither a list nor null."""
    if bytes(memoryview(sent)[:1]) not in (b"[", b"n"):
        raise InvalidRequest("Invalid type for 'items': expected a list of items.", code="invalid_type", param="items")


async def _by_hand(
    service: Service, tenant: str, id: str, sent: msgspec.Raw, chain: Chain
) -> tuple[Turn, list[InputItem]]:
    """A turn of items that follow a chain; and these. Raises InvalidRequest, StoreUnavailable."""
    try:
        items, messages = await _rendered(service, tenant, sent, chain)
    except InvalidRequest as error:
        raise _about_items(error) from None
    identify(items, id)
    return by_hand(id, chain.tip, messages, msgspec.json.encode(items)), items


async def _rendered(service: Service, tenant: str, sent: msgspec.Raw, chain: Chain) -> tuple[list[InputItem], Messages]:
    """Items, and the messages that a prompt shows of them. Raises InvalidRequest, StoreUnavailable."""
    gathered = Gathered(images=service.limits.images)
    items = await in_steps(read_input(sent, gathered, max_items=MAX_ITEMS))
    for place, item in enumerate(items):
        if isinstance(item, OF_ONE_REQUEST):
            raise invalid_value(f"input[{place}].type", item.kind, "Send it with the response that it is about.")
    if gathered.references:
        stored = await stored_items(service.store, tenant, tuple(gathered.references))
        items = await in_steps(resolve(items, stored, gathered, max_items=MAX_ITEMS))
    opener = await service.seals.of(tenant)
    conversion = Conversion(Rules(), opener, list(chain.messages()), SHORTENED_TOKENS)
    try:
        return items, tuple(await in_steps(conversion.messages_of((), items, answered=False)))
    except TooManyTokens:
        raise InvalidRequest("The items are too long.", code="invalid_value", param="input") from None
    except RunTooLong as error:
        raise InvalidRequest(f"Invalid text: {error}.", code="invalid_value", param="input") from None


def _about_items(error: InvalidRequest) -> InvalidRequest:
    """A refusal of input, where its name is `items`."""
    message, param = error.message, error.param or ""
    for before, after in (("'input", "'items"), (" input[", " items[")):
        message = message.replace(before, after)
    return InvalidRequest(message, code=error.code, param=param.replace("input", "items", 1) or None)
