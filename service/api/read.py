"""Input items: from the JSON of `input` to checked items, in the form in which they are listed again.

readers.py checks the items of each type, and responses/prompt/drafts.py puts them into the prompt. The caller's ids are
dropped. Ours are derived from the response's (ids.py), and `identify` gives them once that is known.
"""

import re
from collections.abc import Generator, Mapping, Sequence

from msgspec import Raw

from service.api import ids
from service.api.actions import ToolSearchOutputItem
from service.api.items import (
    BYTES_A_STEP,
    MAX_REFERENCED_BYTES,
    AdditionalToolsItem,
    CompactionTriggerItem,
    ConfigurationUpdateItem,
    Gathered,
    InputItem,
    ItemReference,
    MessageItem,
)
from service.api.readers import reader_of
from service.decoding import decode, decode_list
from service.errors import InvalidRequest, invalid_value

ITEMS_A_STEP = 128
"""The number of items that are read before others get a turn."""

PARTS_AN_ITEM = 4
"""A request may have so many content parts for each item that it may have."""

OF_ONE_REQUEST = (AdditionalToolsItem, ConfigurationUpdateItem, CompactionTriggerItem)
"""Items that say how one request is served, and nothing that another could refer to."""

SENT_WHOLE = (*OF_ONE_REQUEST, ToolSearchOutputItem)
"""Items that nothing can refer to: their tools are read before anything is fetched."""

_NOTHING_MORE = re.compile(rb"[ \t\r\n]*\]")


def read_input(raw: Raw, gathered: Gathered, *, max_items: int) -> Generator[None, None, list[InputItem]]:
    """Read `input`, a text or a list of items, yielding now and then. Raises InvalidRequest, naming the item."""
    first = bytes(memoryview(raw)[:1])
    if first == b'"':
        return [MessageItem("user", [{"type": "input_text", "text": decode(raw, str, "input")}])]
    if bytes(raw) == b"null":
        return []
    if first != b"[":
        raise InvalidRequest(
            "Invalid type for 'input': expected a string or a list of items.",
            code="invalid_type",
            param="input",
        )
    sent = decode_list(raw, max_items, "input")
    if len(memoryview(raw)) > BYTES_A_STEP:
        yield
    items: list[InputItem] = []
    read = parts = 0
    for place, item in enumerate(sent, 1):
        items.append((yield from _read_item(item, f"input[{place - 1}]", gathered)))
        parts = _counted(parts, items[-1], max_items)
        read += len(memoryview(item))
        if place % ITEMS_A_STEP == 0 or read > BYTES_A_STEP:
            read = 0
            yield
    if gathered.trigger is not None and gathered.trigger != f"input[{len(items) - 1}]":
        raise invalid_value(f"{gathered.trigger}.type", "compaction_trigger", "It is the last item, or there is none.")
    return items


def _read_item(raw: Raw, where: str, gathered: Gathered) -> Generator[None, None, InputItem]:
    """Read the item at `where`, yielding between the scans of a long one: each of 8 MB takes up to 16 ms."""
    long = len(memoryview(raw)) > BYTES_A_STEP
    reader = reader_of(raw, where)
    if long:
        yield
    sent = decode(raw, reader.sent, where)
    if long:
        yield
    return reader.read(sent, where, gathered)


def resolve(
    items: Sequence[InputItem], stored: Mapping[str, Raw], gathered: Gathered, *, max_items: int
) -> Generator[None, None, list[InputItem]]:
    """The items with each reference replaced by the item that is stored under its id.

    Raises InvalidRequest for an id that `stored` lacks, and for items that would be too much if they were sent.
    """
    resolved: list[InputItem] = []
    parts = size = 0
    for place, item in enumerate(items):
        known = item
        if isinstance(item, ItemReference):
            where = f"input[{place}]"
            raw = stored.get(item.reference)
            if raw is None:
                raise invalid_value(f"{where}.id", item.reference, "No item with this id is stored; send it whole.")
            size += len(memoryview(raw))
            if size > MAX_REFERENCED_BYTES:
                raise too_much_referenced(f"{where}.id", item.reference)
            known = yield from _read_item(raw, where, gathered)
            if isinstance(known, SENT_WHOLE):
                raise invalid_value(f"{where}.id", item.reference, f"An item of type {known.kind} is to be sent whole.")
            yield
        resolved.append(known)
        parts = _counted(parts, known, max_items)
    return resolved


def too_much_referenced(where: str, reference: str) -> InvalidRequest:
    """The refusal of a reference with which the stored items of a request are more than can be read."""
    return invalid_value(
        where,
        reference,
        f"The stored items that 'input' refers to have more than {MAX_REFERENCED_BYTES} bytes of JSON.",
    )


def _counted(parts: int, item: InputItem, max_items: int) -> int:
    """The count of content parts with the item's own added. Raises InvalidRequest for too many."""
    parts += item.parts
    if parts > max_items * PARTS_AN_ITEM:
        raise InvalidRequest(
            f"Too many content parts in 'input': more than {max_items * PARTS_AN_ITEM}. Join their texts.",
            code="invalid_value",
            param="input",
        )
    return parts


def message_of(text: bytes) -> bytes:
    """The JSON of the user message that a text, as JSON, stands for."""
    return b'{"type":"message","role":"user","content":%b}' % text


def led_by(items: bytes, raw: Raw) -> Raw:
    """A list of items, as JSON, before an input as it was sent. An input that is neither text nor list is returned as
    it is: `read_input` refuses it.
    """
    sent = bytes(raw)
    if sent == b"null":
        return Raw(items)
    if items == b"[]" or sent[:1] not in (b'"', b"["):
        return raw
    own = message_of(sent) + b"]" if sent[:1] == b'"' else sent[1:]
    comma = b"" if _NOTHING_MORE.match(own) else b","
    return Raw(items[:-1] + comma + own)


def identify(items: Sequence[InputItem], response_id: str) -> None:
    """Give each item its id, which follows from its place in the input of this response."""
    for place, item in enumerate(items):
        item.id = ids.input_item_id(response_id, item.kind, place)
