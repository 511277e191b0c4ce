"""Prompts as JSON, as servers take them: what the next prompt of a conversation begins with is written once.

A prompt of a conversation begins with the whole of the one before, so it is cut into blocks at the same places, and the
text of the last blocks is kept. To make numbers of 100,000 ids and a text of these takes some milliseconds else, longer
than all that a response takes besides. As for a server's own prefix cache, nobody can tell by the time what a prompt of
another salt began with.
"""

from array import array
from functools import lru_cache

import msgspec

from service.engine.port import Generation

BLOCK_IDS = 1024
MOST_BLOCKS = 1024
"""How many blocks are kept: of 11 KB each, as ids and as a text, so a million ids in 11 MB."""

_ENCODE = msgspec.json.Encoder().encode


def prompt_json(generation: Generation) -> msgspec.Raw:
    """The ids of a generation's prompt as a JSON array."""
    prompt = generation.prompt
    if not isinstance(prompt, array) or len(prompt) < BLOCK_IDS:
        return msgspec.Raw(_ENCODE(list(prompt)))
    whole = len(prompt) // BLOCK_IDS * BLOCK_IDS
    packed, size = memoryview(prompt)[:whole].cast("B"), BLOCK_IDS * prompt.itemsize
    blocks = [
        block_json(generation.cache_salt, prompt.typecode, bytes(packed[start : start + size]))
        for start in range(0, len(packed), size)
    ]
    if whole < len(prompt):
        blocks.append(_listed(prompt[whole:]))
    return msgspec.Raw(b"[%b]" % b",".join(blocks))


@lru_cache(maxsize=MOST_BLOCKS)
def block_json(salt: str | None, typecode: str, packed: bytes) -> bytes:
    """The ids of one block, with commas between."""
    return _listed(array(typecode, packed))


def _listed(ids: "array[int]") -> bytes:
    """The ids with commas between."""
    return _ENCODE(ids.tolist())[1:-1]
