"""The types of fields that people give to pydantic: each is taken as strict, and what the demo answers parses.

`client.responses.parse` makes each model a strict schema, and refuses an answer that its own model doesn't take.
"""

import enum
import uuid
from datetime import date, datetime
from decimal import Decimal
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal

import pytest
from openai import OpenAI
from pydantic import BaseModel, Field, HttpUrl, create_model

from tests.support.service.process import MODEL, ServiceProcess


class Colour(enum.Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    """One of two kinds."""

    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    """The other kind."""

    kind: Literal["dog"]
    tricks: list[str]


class Tree(BaseModel):
    """What has itself in it."""

    name: str
    below: list["Tree"]


TYPES: dict[str, Any] = {
    "a number": float,
    "a boolean": bool,
    "what may be nothing": int | None,
    "constants": Literal["a", "b"],
    "an enum": Colour,
    "a list": list[int],
    "a set of several": Annotated[frozenset[int], Field(min_length=3, max_length=5)],
    "a pair": tuple[int, str],
    "a dict": dict[str, int],
    "models told apart": Annotated[Cat | Dog, Field(discriminator="kind")],
    "a recursion": Tree,
    "a day": date,
    "a moment": datetime,
    "a UUID": uuid.UUID,
    "an address": IPv4Address,
    "a link": HttpUrl,
    "a decimal": Decimal,
    "a text of a length": Annotated[str, Field(min_length=2, max_length=20)],
    "a pattern": Annotated[str, Field(pattern=r"^\d{3}-\d{4}$")],
    "a pattern and a length": Annotated[str, Field(pattern="^[a-z]+$", min_length=3, max_length=10)],
    "a bounded integer": Annotated[int, Field(ge=1, le=10)],
    "multiples between bounds": Annotated[float, Field(multiple_of=0.25, ge=0.1, le=1)],
}


@pytest.mark.parametrize("kind", TYPES)
def test_a_model_with_such_a_field_is_answered_and_parsed(service: ServiceProcess, kind: str) -> None:
    model = create_model("Answer", value=(TYPES[kind], ...))
    with OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0) as client:
        response = client.responses.parse(model=MODEL, input="Say something of 7 boats.", text_format=model)

    assert response.status == "completed", response.error
    assert isinstance(response.output_parsed, model)
    assert response.text is not None
    assert response.text.format is not None
    assert response.text.format.type == "json_schema"
    assert response.text.format.strict
