"""References to stored items: those that a request names by their ids (`item_reference`) are fetched before its prompt
is built.
"""

from collections.abc import Collection, Generator, Mapping, Sequence

import msgspec

from service.api import ids
from service.api.conversation import Omitted
from service.api.items import BYTES_A_STEP, MAX_REFERENCED_BYTES, duplicate
from service.api.read import too_much_referenced
from service.errors import InvalidRequest
from service.responses.pictures import with_data_urls
from service.steps import in_steps
from store.errors import NotFound
from store.history.history import ConversationHistoryStore
from store.history.omissions import omissions_of

MAX_RESPONSES = 64
"""The most responses whose items one request may name: each is read whole."""


class _Item(msgspec.Struct):
    id: str = ""


class _Output(msgspec.Struct):
    output: list[msgspec.Raw] = []


_items = msgspec.json.Decoder(list[msgspec.Raw])
_output = msgspec.json.Decoder(_Output)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_id = msgspec.json.Decoder(_Item)


async def stored_items(
    store: ConversationHistoryStore, tenant: str, references: Sequence[str], replayed: Collection[str] = ()
) -> Mapping[str, msgspec.Raw]:
    """The items that are stored under these ids, as JSON; one that isn't there is left out, whoever's it is. Of too
    many responses the oldest are left out as far as their items are all of a history, and so `replayed`.

    Raises InvalidRequest for items of too many responses, and for more than MAX_REFERENCED_BYTES of them,
    StoreUnavailable.
    """
    wanted: dict[str, set[str]] = {}
    for reference in references:
        response_id = ids.response_of(reference)
        if response_id is not None:
            wanted.setdefault(response_id, set()).add(reference)
    replayed = frozenset(replayed)
    older = [id for id, names in wanted.items() if names <= replayed]
    for id in older[: max(len(wanted) - MAX_RESPONSES, 0)]:
        del wanted[id]
    if len(wanted) > MAX_RESPONSES:
        raise InvalidRequest(
            f"The items that 'input' refers to belong to {len(wanted)} responses, at most {MAX_RESPONSES} are allowed. "
            "Continue from the last one by 'previous_response_id', or send the items themselves.",
            code="invalid_value",
            param="input",
        )
    found: dict[str, msgspec.Raw] = {}
    size = 0
    for response_id, names in wanted.items():
        try:
            ((response, items),) = await store.items(tenant, [response_id])
        except NotFound:
            continue
        if not response:  # deleted, or not there
            continue
        named = await in_steps(_items_with(response, items, names))
        shown = await with_data_urls(store, tenant, response_id, [raw for _, raw in named])
        for name, raw in zip([name for name, _ in named], shown, strict=True):
            found[name] = raw
            size += len(memoryview(raw))
            if size > MAX_REFERENCED_BYTES:
                raise too_much_referenced("input", name)
    return found


async def omitted_items(store: ConversationHistoryStore, tenant: str, turns: Sequence[str]) -> frozenset[str]:
    """The ids of the items that a conversation with these turns has and goes without. Raises StoreUnavailable."""
    blobs = await store.items(tenant, omissions_of(turns))
    return frozenset(msgspec.json.decode(shown, type=Omitted).omits for shown, _ in blobs if shown)


async def refuse_known(
    store: ConversationHistoryStore,
    tenant: str,
    turns: Sequence[str],
    sent: Collection[str],
    *,
    code: str | None = None,
) -> None:
    """Raise InvalidRequest, with this code, where one of the items that were `sent`, by their ids, is in a conversation
    with these turns already: not deleted from it, nor erased. Raises StoreUnavailable.
    """
    known, among = dict[str, list[str]](), frozenset(turns)
    for id in sent:
        turn = ids.response_of(id)
        if turn in among:
            known.setdefault(turn, []).append(id)
    omitted = await omitted_items(store, tenant, turns) if known else ()
    for turn, names in known.items():
        try:
            ((response, items),) = await store.items(tenant, [turn])
        except NotFound:
            response, items = b"", b""
        there = {name for name, _ in await in_steps(_items_with(response, items, names))} if response else names
        for id in names:  # of a turn that isn't stored, or was deleted, the conversation has the words
            if id in there and id not in omitted:
                raise duplicate(id, code=code)


def without_item(response: bytes, items: bytes, id: str) -> tuple[bytes, bytes]:
    """The JSON of a response and of its input items, without the item with this id. The response's messages in
    Harmony's form are all removed, as nothing says which of them are of the item.
    """
    members = _members.decode(response)
    if "output" in members:
        members["output"] = msgspec.Raw(_without(members["output"], id))
    for shown_in_harmony in ("input_messages", "output_messages"):
        members.pop(shown_in_harmony, None)
    return msgspec.json.encode(members), _without(items, id)


def _without(items: bytes | msgspec.Raw, id: str) -> bytes:
    return msgspec.json.encode([raw for raw in _items.decode(items) if _id.decode(raw).id != id])


def _items_with(
    response: bytes, items: bytes, names: Collection[str]
) -> Generator[None, None, list[tuple[str, msgspec.Raw]]]:
    """The items with these ids among a response's output and input, without the rest of it."""
    output = _output.decode(response).output
    yield
    given = _items.decode(items)
    yield
    found: list[tuple[str, msgspec.Raw]] = []
    read = 0
    for raw in (*output, *given):
        name = _id.decode(raw).id
        if name in names:
            found.append((name, raw.copy()))
        read += len(memoryview(raw))
        if read > BYTES_A_STEP:
            read = 0
            yield
    return found
