"""Ids of the things inside a response, derived from its own id, so that an item finds its response without an index.

A response id is `resp_` and 48 hex digits. An output item is its kind's prefix, the same digits and four hex digits
of its output index; an input item has four hex digits of its place in the request's input, counted from 0x8000.
"""

MAX_OUTPUT_ITEMS = 0x8000
MAX_INPUT_ITEMS = 0x8000
_PREFIXES = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
}
_FIRST_INPUT = 0x8000


def output_item_id(response_id: str, kind: str, index: int) -> str:
    """The id of the response's output item at `index`."""
    return f"{_PREFIXES[kind]}{response_id[5:]}{index:04x}"


def input_item_id(response_id: str, kind: str, index: int) -> str:
    """The id of the `index`-th item of the response's own input."""
    return f"{_PREFIXES[kind]}{response_id[5:]}{_FIRST_INPUT + index:04x}"


def call_id(response_id: str, index: int) -> str:
    """The call id of the function call at output `index`."""
    return f"call_{response_id[5:]}{index:04x}"


def response_of(item_id: str) -> str | None:
    """The id of the response that an item belongs to, or None for an id that we didn't make."""
    prefix, separator, digits = item_id.partition("_")
    if f"{prefix}{separator}" not in _PREFIXES.values() or len(digits) != 52:
        return None
    return f"resp_{digits[:48]}"
