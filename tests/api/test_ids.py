"""Ids of items: derived from the response's, and traced back to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.ids import MAX_OUTPUT_ITEMS, ItemIndex, input_item_id, output_item_id, place_of, response_of

HEX = "00ff" * 12
RESPONSE = f"resp_{HEX}"
kinds = st.sampled_from(["message", "reasoning", "function_call", "function_call_output"])


@pytest.mark.parametrize("foreign", ["", "msg_", "msg_123", f"msg{HEX}0000", f"x_{HEX}0000", f"{RESPONSE}0000", "_"])
def test_an_id_that_we_did_not_make_leads_nowhere(foreign: str) -> None:
    assert response_of(foreign) is None


@given(kind=kinds, index=st.integers(0, MAX_OUTPUT_ITEMS - 1))
def test_an_id_says_where_its_item_stands(kind: str, index: int) -> None:
    assert place_of(output_item_id(RESPONSE, kind, index)) == ItemIndex(RESPONSE, False, index)
    assert place_of(input_item_id(RESPONSE, kind, index)) == ItemIndex(RESPONSE, True, index)
