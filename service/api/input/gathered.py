"""What reading an item takes: steps that let others run, and what items say of the request as a whole."""

from collections.abc import Generator
from typing import Literal, TypeVar

import msgspec
from msgspec import Raw

from service.api.decoding import decode
from service.api.request import Effort

BYTES_A_STEP = 65_536
"""How much JSON is read before others get a turn: at most some 3 ms."""

MAX_REFERENCED_BYTES = 8_388_608
"""The most JSON of stored items that one request refers to: what a body may have, unless somebody lets it have more."""

Images = Literal["placeholder", "refuse"]

T = TypeVar("T")
Reading = Generator[None, None, T]
"""Yields between pieces of work, and returns what was read."""


class Gathered(msgspec.Struct):
    """What items say of the request as a whole: `added` lists of tools with their places, another effort or format of
    the answer, this with its place (the last one holds), the ids of stored items, and that all before is to be
    compacted.
    """

    images: Images = "placeholder"
    added: list[tuple[str, Raw]] = msgspec.field(default_factory=list[tuple[str, Raw]])
    effort: Effort | None = None
    format: tuple[Raw, str] | None = None
    references: dict[str, None] = msgspec.field(default_factory=dict[str, None])
    trigger: str | None = None
    """Where the wish for a compaction stands."""


def decode_step(raw: Raw, decoder: "msgspec.json.Decoder[T]", where: str) -> Reading[T]:
    """`decode` as a step of its own where it is long: each scan of 8 MB takes up to 16 ms."""
    value = decode(raw, decoder, where)
    if len(memoryview(raw)) > BYTES_A_STEP:
        yield
    return value
