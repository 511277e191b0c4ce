"""Prompts as JSON, as servers take them: what the next prompt of a conversation begins with is written once.

A prompt of a conversation mostly begins with the one before, up to its last answer. So it is cut into blocks at the
same places, and the text of the last blocks is kept. Without that, 100,000 ids take some milliseconds, longer than all
that a response takes besides. As for a server's own prefix cache, nobody can tell by the time what a prompt of another
salt began with.
"""

from array import array
from functools import lru_cache

import msgspec

from service.engine.port import EngineRefused, Generation

BLOCK_IDS = 1024
MOST_BLOCKS = 1024
"""How many blocks are kept: of 11 KB each, as ids and as a text, so a million ids in 11 MB."""

_ENCODE = msgspec.json.Encoder().encode


def prompt_json(generation: Generation, last: int | None = None) -> msgspec.Raw:
    """The ids of a generation's prompt as a JSON array. Raises EngineRefused for one beyond `last`, if given."""
    prompt = generation.prompt
    if not isinstance(prompt, array) or len(prompt) < BLOCK_IDS:
        return msgspec.Raw(b"[%b]" % _listed(list(prompt), last))
    whole = len(prompt) // BLOCK_IDS * BLOCK_IDS
    packed, size = memoryview(prompt)[:whole].cast("B"), BLOCK_IDS * prompt.itemsize
    blocks = [
        block_json(generation.cache_salt, prompt.typecode, bytes(packed[start : start + size]), last)
        for start in range(0, len(packed), size)
    ]
    if whole < len(prompt):
        blocks.append(_listed(prompt[whole:].tolist(), last))
    return msgspec.Raw(b"[%b]" % b",".join(blocks))


@lru_cache(maxsize=MOST_BLOCKS)
def block_json(salt: str | None, typecode: str, packed: bytes, last: int | None) -> bytes:
    """The ids of one block, with commas between. Raises EngineRefused."""
    return _listed(array(typecode, packed).tolist(), last)


def _listed(ids: list[int], last: int | None) -> bytes:
    """The ids with commas between. Raises EngineRefused."""
    if last is not None and max(ids, default=0) > last:
        raise EngineRefused(f"{max(ids)} is no token id; the last is {last}")
    return _ENCODE(ids)[1:-1]
