"""A tenant's conversations, page by page in the order in which they began: all, or those with certain metadata.

Metadata is looked at one conversation after the other, so a page of a filter ends after so many of them, wherever it is
by then, and says that there may be more. Never go on to the end for one that matches: a tenant may have a million.
"""

import re
from collections.abc import Iterable

import msgspec

from service.api.conversation import decode_conversation
from service.api.request import MAX_METADATA_PAIRS, check_pair
from service.errors import InvalidRequest, invalid_value, shown
from service.web.routes.input_items import Page
from store.errors import ConversationNotFound
from store.history.conversations import Conversations

MAX_LOOKED_AT = 2_000
"""The most conversations that one request looks at: some 30 ms, of which no other request waits for more than two."""

MAX_LOOKED_AT_BYTES = 4 << 20
"""The most bytes of those conversations; metadata may have 37 KB."""

AT_ONCE = 100
"""How many are looked at before others have their turn."""

_FILTER = re.compile(r"metadata\[(.*)\]", re.DOTALL)

Filter = dict[str, str]
"""The pairs that a conversation must have in its metadata; all of them."""


def read_filter(parameters: Iterable[tuple[str, str]]) -> Filter:
    """The filter that a query asks for, written as metadata[key]=value. Raises InvalidRequest."""
    wanted: Filter = {}
    for name, value in parameters:
        if not name.startswith("metadata"):
            continue
        match = _FILTER.fullmatch(name)
        if match is None:
            raise invalid_value("metadata", f"{name}={value}", "Write what is wanted as metadata[key]=value.")
        if match[1] in wanted:
            raise invalid_value("metadata", match[1], "A key is given once, as a conversation has one value for it.")
        check_pair(match[1], value)
        wanted[match[1]] = value
    if len(wanted) > MAX_METADATA_PAIRS:
        raise invalid_value("metadata", len(wanted), f"At most {MAX_METADATA_PAIRS} pairs can be asked for.")
    return wanted


async def page_of_conversations(
    conversations: Conversations, tenant: str, *, limit: int, ascending: bool, after: str | None, wanted: Filter
) -> Page:
    """At most `limit` conversations behind `after`, that have all that is wanted.

    `last_id` is where the next page goes on: behind the last of them, or of those that were looked at in vain. Raises
    InvalidRequest for an `after` that is no conversation, StoreUnavailable.
    """
    listing = conversations.listing(tenant, after=after, ascending=ascending)
    found: list[tuple[str, bytes]] = []
    looked_at, size, last = 0, 0, None
    while looked_at < MAX_LOOKED_AT and size < MAX_LOOKED_AT_BYTES:
        try:
            some = await listing.some(AT_ONCE if wanted else limit + 1 - len(found))
        except ConversationNotFound as error:
            raise _no_such_conversation(error.id) from None
        for id, json in some:
            size += len(json or b"")
            if json is not None and _has(json, wanted):
                found.append((id, json))
            if len(found) > limit:
                return _page(found[:limit], found[limit - 1][0], more=True)
            last = id
        looked_at += len(some)
        if not some:
            return _page(found, found[-1][0] if found else None, more=False)
    return _page(found, last, more=True)


def _has(json: bytes, wanted: Filter) -> bool:
    return not wanted or wanted.items() <= decode_conversation(json).metadata.items()


def _page(found: list[tuple[str, bytes]], last_id: str | None, *, more: bool) -> Page:
    return Page([msgspec.Raw(json) for _, json in found], found[0][0] if found else None, last_id, more)


def _no_such_conversation(id: str) -> InvalidRequest:
    return InvalidRequest(
        f"No conversation '{shown(id)}' in this list. Give 'after' the last_id of the page before.",
        code="invalid_value",
        param="after",
    )
