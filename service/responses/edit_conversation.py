"""Conversations as their routes change them: begun, renamed, and items added to them by hand.

Items that nobody's response has are a turn of their own. They are rendered as input is, so that a prompt of the
conversation begins with them as it would if they had been sent with it. Nothing here asks the engine.
"""

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial

import msgspec

from service import logs
from service.api import ids
from service.api.conversation import MAX_ITEMS, Conversation, New, Omitted, decode_conversation
from service.api.items import ConfigurationUpdateItem, Gathered, InputItem
from service.api.read import OF_ONE_REQUEST, identify, read_input, resolve
from service.api.tools.format import read_format
from service.api.tools.read import read_tools
from service.errors import InvalidRequest, invalid_value, missing, not_served
from service.harmony.calls import CUT_CALL, history_of
from service.harmony.tokens import RunTooLong, TooManyTokens
from service.responses.conversation_hold import ConversationHold, joining
from service.responses.output.reading import READ, SAMPLED
from service.responses.output.rules import Rules
from service.responses.prompt.build import SHORTENED_TOKENS
from service.responses.prompt.drafts import Conversion
from service.responses.prompt.read import MAX_TOOLS, MAX_TOOLS_BYTES
from service.responses.references import refuse_known, stored_items, without_item
from service.responses.refusals import fork_refusal
from service.responses.service import Caller, Service
from service.steps import in_steps
from store.errors import NotContinuable, NotFound, StoreUnconfirmed, TurnTooLarge
from store.history.conversations import Conversations, by_hand
from store.history.history import ConversationHistoryStore
from store.history.omissions import ERASED, omission, omitting, without_text
from store.keys import CONVERSATION_PREFIX, OMISSION_MARK
from store.turn import Chain, Messages, Picture, Status, Turn

logger = logging.getLogger(__name__)


Named = Callable[[str], Awaitable[str]]
"""Told of the id of what is to be stored, before it is; the one that it gets."""


Tell = Callable[[Iterable[str], Iterable[str]], None]
"""Told of the tools and of the kinds of items that are left out."""


async def begin(service: Service, caller: Caller, new: New, named: Named, *, tell: Tell) -> Conversation:
    """Begin a conversation with some items, or none, or with all that another one has. Raises ApiError, StoreError."""
    _refuse_another_type(new.items)
    if new.fork_of is None:
        return await _begin(service, caller, await named(service.conversations.new_id()), new, Chain(), tell)
    try:
        return await _fork(service, caller, new, new.fork_of, tell, named)
    except (NotFound, NotContinuable, TurnTooLarge) as error:
        raise fork_refusal(error) from error


async def _fork(service: Service, caller: Caller, new: New, source: str, tell: Tell, named: Named) -> Conversation:
    """Begin a conversation below the newest turn of another one, or below a response. Raises ApiError, StoreError."""
    conversations = service.conversations
    if not source.startswith(CONVERSATION_PREFIX) and not await service.running.ended(caller.tenant, source):
        raise NotContinuable(source, Status.IN_PROGRESS)
    id, pin = await named(conversations.new_id(source)), service.store.token()
    branch = partial(conversations.branch, caller.tenant, source, pin)
    async with service.loans.on_loan(branch, partial(conversations.release, caller.tenant, source, pin)) as loan:
        chain = loan.taken
        shown = await _begin(service, caller, id, new, chain, tell)
        loan.over = True
    return shown


async def _begin(service: Service, caller: Caller, id: str, new: New, chain: Chain, tell: Tell) -> Conversation:
    shown = Conversation(id, int(service.store.clock()), new.metadata)
    first, _ = await _by_hand(service, caller, service.conversations.first_turn_id(id), new.items, chain, tell)
    with _told_by_the_log(id):
        await service.conversations.create(caller.tenant, id, first, msgspec.json.encode(shown), pin=chain.pin or "")
    return shown


async def change(conversations: Conversations, tenant: str, id: str, metadata: dict[str, str]) -> Conversation:
    """Give a conversation other metadata. Raises StoreError."""
    before = decode_conversation(await conversations.get(tenant, id))
    shown = msgspec.structs.replace(before, metadata=metadata)
    await conversations.amend(tenant, id, msgspec.json.encode(shown))
    return shown


async def add_items(
    service: Service, caller: Caller, id: str, sent: msgspec.Raw, named: Named, *, tell: Tell
) -> Sequence[InputItem]:
    """Add items, which are still JSON, to a conversation; as they are listed.

    Raises InvalidRequest, ConversationHeld while a response of it is made, StoreError.
    """
    _refuse_another_type(sent)
    async with joining(service, caller.tenant, id) as joined:
        chain = await service.conversations.chain(caller.tenant, id)
        turn_id = await named(service.conversations.new_turn_id(id))
        turn, items = await _by_hand(service, caller, turn_id, sent, chain, tell)
        if not items:
            raise missing("items", f"Give 1 to {MAX_ITEMS} of them.")
        with _told_by_the_log(id):
            await joined.add(turn)
    return items


async def omit_item(
    conversations: Conversations, joined: ConversationHold, tenant: str, turns: Sequence[str], item_id: str
) -> None:
    """Have a conversation, whose turns these are, go on without an item that one of them has.

    Raises StoreError.
    """
    place, shown = _place_of(item_id), msgspec.json.encode(Omitted(item_id))
    messages = await conversations.history.messages(tenant, place.response_id)
    note = omitting(place.response_id, messages, place.number)
    turn = omission(conversations.new_turn_id(joined.id, OMISSION_MARK), turns[-1], note, shown)
    with _told_by_the_log(joined.id):
        await joined.add(turn)


async def erase_item(store: ConversationHistoryStore, tenant: str, item_id: str) -> None:
    """Take an item out of its turn, for all that continue that. Raises StoreError."""
    place = _place_of(item_id)

    def edit(messages: Messages, response: bytes, items: bytes) -> tuple[Messages, bytes, bytes]:
        left = without_text(messages, place.number)
        left = tuple(ERASED if each.role in (READ, SAMPLED) else each for each in left)  # these have its text, too
        return left, *without_item(response, items, item_id)

    await store.redact(tenant, place.response_id, edit)


def _place_of(item_id: str) -> ids.ItemIndex:
    place = ids.place_of(item_id)
    if place is None:
        raise ValueError(f"{item_id} is no id of an item")
    return place


@contextmanager
def _told_by_the_log(id: str) -> Generator[None]:
    """The log says what is stored and not as safe as it should be: who is refused, asks again and has it twice."""
    try:
        yield
    except StoreUnconfirmed as lack:
        message = "conversation stored, but not confirmed"
        logs.event(logger, logging.ERROR, message, conversation_id=id, reason=str(lack))


def _refuse_another_type(sent: msgspec.Raw) -> None:
    """Raise InvalidRequest for what is neither a list nor null."""
    if bytes(memoryview(sent)[:1]) not in (b"[", b"n"):
        raise InvalidRequest("Invalid type for 'items': expected a list of items.", code="invalid_type", param="items")


async def _by_hand(
    service: Service, caller: Caller, id: str, sent: msgspec.Raw, chain: Chain, tell: Tell
) -> tuple[Turn, list[InputItem]]:
    """A turn of items that follow a chain; and these. Raises InvalidRequest, StoreUnavailable."""
    try:
        items, messages, pictures = await render(service, caller, sent, chain, tell)
    except InvalidRequest as error:  # here the name of input is `items`
        message, param = error.message, error.param or ""
        for before, after in (("'input'", "'items'"), ("'input[", "'items["), (" input[", " items[")):
            message = message.replace(before, after)
        param = param.replace("input", "items", 1) or None
        raise InvalidRequest(message, code=error.code, param=param) from None
    items = identify(items, id)
    turn = by_hand(id, chain.tip, messages, msgspec.json.encode(items))
    return msgspec.structs.replace(turn, pictures=pictures), items


async def render(
    service: Service, caller: Caller, sent: msgspec.Raw, chain: Chain, tell: Tell, *, most: int = MAX_ITEMS
) -> tuple[list[InputItem], Messages, tuple[Picture, ...]]:
    """Items that are to be stored, the messages that a prompt shows of them, and their pictures. Raises InvalidRequest,
    StoreUnavailable.
    """
    if not service.settings.store:
        raise not_served("items", "given", "This service stores no conversations.")
    gathered = Gathered(service.settings.picture_bounds)
    sent = await service.attachments.read_into(caller.entry, sent)
    items = await in_steps(read_input(sent, gathered, max_items=most))
    await refuse_known(service.store, caller.tenant, chain.ids, gathered.ids, code="item_already_in_conversation")
    for place, item in enumerate(items):
        if isinstance(item, ConfigurationUpdateItem):
            if item.text is not None:  # nobody could be given an answer in a format that can't be
                await in_steps(read_format(item.text["format"], f"input[{place}].text.format"))
        elif isinstance(item, OF_ONE_REQUEST):
            raise invalid_value(f"input[{place}].type", item.kind, "Send it with a request for a response.")
    if gathered.loaded:  # whoever goes on has them read again, and could do nothing about a fault
        nothing = msgspec.Raw(b"[]")
        await in_steps(read_tools(nothing, max_tools=MAX_TOOLS, max_bytes=MAX_TOOLS_BYTES, loaded=gathered.loaded))

    async def look() -> None:
        await service.tenants.entrance.refuse_exhausted(caller.entry, "pictures", counts=True)

    async with AsyncExitStack() as resources:
        await service.picture_fetcher.take(caller.tenant, gathered, resources, look, refuses=False)
    if gathered.references:
        stored = await stored_items(service.store, caller.tenant, tuple(gathered.references))
        items = await in_steps(resolve(items, stored, gathered, max_items=most))
    opener = await service.seals.of(caller.tenant)
    pictures = gathered.pictures
    known, cut_calls = history_of(chain), chain.notes().get(CUT_CALL, ())
    conversion = Conversion(
        *(Rules(), opener, known, items, SHORTENED_TOKENS),
        pictures=pictures,
        cut_calls=cut_calls,
        left_out=None if gathered.bounds is None else gathered.left_out,
        approvals=service.toolbox.approvals,
    )
    try:
        messages = tuple(await in_steps(conversion.messages_of(answered=False)))
    except TooManyTokens:
        raise InvalidRequest("The items are too long.", code="invalid_value", param="input") from None
    except RunTooLong as error:
        raise InvalidRequest(f"Invalid text: {error}.", code="invalid_value", param="input") from None
    tell((), gathered.left_out)
    return items, messages, tuple(each.picture for each in pictures.values())
