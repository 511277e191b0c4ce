"""Which dictionaries this release has, and loading one: once in a process, for all its threads.

A frame names the dictionary that it needs by its number, so any release reads what an earlier one has written. A later
one's is unknown here: NewerFormat.
"""

from functools import cache
from pathlib import Path
from typing import Any, cast

import zstandard

from store.errors import UnknownDictionary

LEVEL = 3
"""The level of zstd that all compress at: a prepared dictionary is for one level."""

NEWEST = 32_769
"""The one to write with. By zstd's own rules lower numbers are for dictionaries of common use; one of these takes 2
bytes in a frame, up to 65,535.
"""

SHIPPED = frozenset({NEWEST})
"""The numbers of all that were ever shipped."""


def file_of(number: int) -> Path:
    """Where the dictionary with this number lies."""
    return Path(__file__).with_name(f"{number}.zdict")


@cache
def dictionary(number: int) -> zstandard.ZstdCompressionDict:
    """The dictionary with this number, prepared. Raises UnknownDictionary."""
    if number not in SHIPPED:
        raise UnknownDictionary(number)
    made = zstandard.ZstdCompressionDict(file_of(number).read_bytes())
    cast(Any, made).precompute_compress(level=LEVEL)  # of which the types say nothing
    return made
