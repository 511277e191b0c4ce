"""Input items: from the JSON of `input` to checked items, in the form in which they are listed again.

What an item of each type may be is in input_readers.py, and how it stands in the prompt in conversion.py. Ids of the
caller's are dropped: ours are derived from the response's (ids.py) and given by `identify` once that is known.
"""

from collections.abc import Mapping, Sequence

from msgspec import Raw

from service.protocol import ids
from service.protocol.content_parts import MAX_PARTS
from service.protocol.decoding import decode, decode_list, decoder_of
from service.protocol.errors import InvalidRequest, invalid_value
from service.protocol.gathering import BYTES_A_STEP, Gathered, Reading
from service.protocol.input_items import InputItem, ItemReference, MessageItem
from service.protocol.input_readers import MAX_CALL_ID_CHARS, read_item

__all__ = ["BYTES_A_STEP", "MAX_CALL_ID_CHARS", "MAX_PARTS", "InputItem", "identify", "read_input", "resolve"]

ITEMS_A_STEP = 128
"""How many items are read before others get a turn."""

_PARTS_AN_ITEM = 4
_TEXT = decoder_of(str)


def read_input(raw: Raw, gathered: Gathered, *, max_items: int) -> Reading[list[InputItem]]:
    """Read `input`, a text or a list of items, yielding now and then. Raises InvalidRequest, naming the item."""
    first = bytes(memoryview(raw)[:1])
    if first == b'"':
        return [MessageItem("user", [{"type": "input_text", "text": decode(raw, _TEXT, "input")}])]
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
        items.append((yield from read_item(item, f"input[{place - 1}]", gathered)))
        parts += items[-1].parts
        if parts > max_items * _PARTS_AN_ITEM:
            raise InvalidRequest(
                f"Too many content parts in 'input': more than {max_items * _PARTS_AN_ITEM}. Join their texts.",
                code="invalid_value",
                param="input",
            )
        read += len(memoryview(item))
        if place % ITEMS_A_STEP == 0 or read > BYTES_A_STEP:
            read = 0
            yield
    if gathered.trigger is not None and gathered.trigger != f"input[{len(items) - 1}]":
        raise invalid_value(f"{gathered.trigger}.type", "compaction_trigger", "It is the last item, or there is none.")
    return items


def resolve(items: Sequence[InputItem], stored: Mapping[str, Raw], gathered: Gathered) -> Reading[list[InputItem]]:
    """The items with each reference replaced by the item that is stored under its id.

    Raises InvalidRequest for an id that `stored` lacks.
    """
    resolved: list[InputItem] = []
    for place, item in enumerate(items):
        if not isinstance(item, ItemReference):
            resolved.append(item)
            continue
        raw = stored.get(item.reference)
        if raw is None:
            raise invalid_value(f"input[{place}].id", item.reference, "No item with this id is stored; send it whole.")
        resolved.append((yield from read_item(raw, f"input[{place}]", gathered)))
        yield
    return resolved


def identify(items: Sequence[InputItem], response_id: str) -> None:
    """Give each item its id, which its place in the input of this response decides."""
    for place, item in enumerate(items):
        item.id = ids.input_item_id(response_id, item.kind, place)
