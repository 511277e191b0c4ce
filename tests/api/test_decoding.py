"""A value that isn't one of those allowed is refused with all of them, wherever it stands."""

from typing import Any, Literal

import msgspec
import pytest

from service.decoding import decode
from service.errors import InvalidRequest

Colour = Literal["green", "red"]


class Lamp(msgspec.Struct, tag="lamp", tag_field="type"):
    colour: Colour | None = None


class Sign(msgspec.Struct, tag="sign", tag_field="type"):
    shade: Colour = "red"


class House(msgspec.Struct):
    lamp: Lamp | None = None
    things: list[Lamp | Sign] = []
    colours: list[Colour] | None = None
    rooms: dict[str, Colour] = {}


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ({"lamp": {"type": "lamp", "colour": "blue"}}, "lamp.colour"),
        ({"colours": ["red", "blue"]}, "colours[1]"),
        ({"things": [{"type": "lamp"}, {"type": "sign", "shade": "blue"}]}, "things[1].shade"),
        ({"rooms": {"kitchen": "blue"}}, "rooms"),
    ],
    ids=lambda value: str(value),
)
def test_a_refused_value_is_told_with_those_allowed(value: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode(msgspec.json.encode(value), House)

    assert caught.value.param == param
    assert "expected one of green, red" in caught.value.message
