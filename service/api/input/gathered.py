"""What items say of the request as a whole, and how much of them is read at once."""

from typing import Literal

import msgspec
from msgspec import Raw

from service.api.request import Effort

BYTES_A_STEP = 65_536
"""How much JSON is read before others get a turn: at most some 3 ms."""

MAX_REFERENCED_BYTES = 8_388_608
"""The most JSON of stored items that one request refers to: what a body may have, unless somebody lets it have more."""

Images = Literal["placeholder", "refuse"]


class Gathered(msgspec.Struct):
    """What items say of the request as a whole: `added` lists of tools with their places, and how many tools and bytes
    these come to; those that searches `loaded`, the oldest first; another effort or format of the answer, this with its
    place (the last one holds); the ids of stored items; and that all before is to be compacted. Of the request's
    limits, it knows what becomes of images, and how many bytes tools may have.
    """

    images: Images = "placeholder"
    tools_bytes: int = 1_048_576
    added: list[tuple[str, Raw]] = msgspec.field(default_factory=list[tuple[str, Raw]])
    loaded: list[tuple[str, Raw]] = msgspec.field(default_factory=list[tuple[str, Raw]])
    added_tools: int = 0
    added_bytes: int = 0
    effort: Effort | None = None
    format: tuple[Raw, str] | None = None
    references: dict[str, None] = msgspec.field(default_factory=dict[str, None])
    trigger: str | None = None
    """Where the wish for a compaction stands."""
