"""Ids of the things inside a response, derived from its own id, so that an item finds its response without an index.

A response id is `resp_` and 48 hex digits. An output item is its kind's prefix, the same digits and four hex digits
of its output index; an input item has four hex digits of its place in the request's input, counted from 0x8000.
"""

import re
from typing import NamedTuple

MAX_OUTPUT_ITEMS = 0x8000
MAX_INPUT_ITEMS = 0x8000
_PREFIXES = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
    "compaction": "cmp_",
    "compaction_summary": "cmps_",
    "context_compaction": "cmpc_",
    "compaction_trigger": "cmpt_",
    "agent_message": "amsg_",
    "ghost_snapshot": "gs_",
    "additional_tools": "at_",
    "configuration_update": "cu_",
    "web_search_call": "ws_",
    "file_search_call": "fs_",
    "code_interpreter_call": "ci_",
    "image_generation_call": "ig_",
    "mcp_call": "mcp_",
    "mcp_list_tools": "mcpl_",
    "mcp_approval_request": "mcpr_",
    "mcp_approval_response": "mcpa_",
    "local_shell_call": "lsh_",
    "local_shell_call_output": "lsho_",
    "shell_call": "sh_",
    "shell_call_output": "sho_",
    "apply_patch_call": "apc_",
    "apply_patch_call_output": "apco_",
    "computer_call": "cc_",
    "computer_call_output": "cco_",
    "program": "prog_",
    "program_output": "progo_",
    "tool_search_call": "tsc_",
    "tool_search_output": "tso_",
}
_FIRST_INPUT = 0x8000
_ITEM = re.compile(r"([a-z]+_)([0-9a-f]{48})([0-9a-f]{4})")


class ItemIndex(NamedTuple):
    """The place of an item: at `place` of a response's own input, or of its output."""

    response_id: str
    own_input: bool
    place: int

    @property
    def number(self) -> int:
        """Its number among all items of the response, as its id ends with."""
        return _FIRST_INPUT + self.place if self.own_input else self.place


def output_item_id(response_id: str, kind: str, index: int) -> str:
    """The id of the response's output item at `index`."""
    return f"{_PREFIXES[kind]}{response_id[5:]}{index:04x}"


def input_item_id(response_id: str, kind: str, index: int) -> str:
    """The id of the `index`-th item of the response's own input."""
    return f"{_PREFIXES[kind]}{response_id[5:]}{_FIRST_INPUT + index:04x}"


def input_number(index: int) -> int:
    """The number of the `index`-th item of a response's own input, whose output items have their index."""
    return _FIRST_INPUT + index


def call_id(response_id: str, index: int) -> str:
    """The call id of the function call at output `index`."""
    return f"call_{response_id[5:]}{index:04x}"


def place_of(item_id: str) -> ItemIndex | None:
    """The response and the place of an item, or None for an id that we didn't make."""
    match = _ITEM.fullmatch(item_id)
    if match is None or match[1] not in _PREFIXES.values():
        return None
    place = int(match[3], 16)
    own_input = place >= _FIRST_INPUT
    return ItemIndex(f"resp_{match[2]}", own_input, place - _FIRST_INPUT if own_input else place)


def response_of(item_id: str) -> str | None:
    """The id of the response that an item belongs to, or None for an id that we didn't make."""
    place = place_of(item_id)
    return None if place is None else place.response_id
