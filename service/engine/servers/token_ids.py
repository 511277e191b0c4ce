"""Token ids in, token ids out: what the wires of vLLM and llama.cpp have in common. Pure.

A prompt of a conversation mostly begins with the one before, up to its last answer. So as JSON it is cut into blocks at
the same places, and the text of the last blocks is cached. Without that, 100,000 ids take some milliseconds, longer
than the rest of a response's work. As with a server's own prefix cache, the time tells nobody how a prompt of another
salt began.

A page of metrics, in Prometheus' text format, may be long, cut off, or none at all. A line that can't be read is passed
over, and never more read than that.
"""

import math
from array import array
from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from service.engine.port import Generation, Sampling
from service.engine.servers.kind import Count, ServerEvent

LEAST_TOP_P = 1e-6
"""Servers take no top_p of 0; this one leaves the likeliest token alone, too."""

BAN = -100.0

MAX_SAMPLES = 512
"""How many samples are read of a page: each of a few names, for each engine in a server and each model."""

MOST = 1 << 40
"""No sample counts for more."""

BLOCK_IDS = 1024
MOST_BLOCKS = 1024
"""How many blocks are kept: of 11 KB each, as ids and as a text, so a million ids in 11 MB."""

_ENCODE = msgspec.json.Encoder().encode


class _PromptDetails(msgspec.Struct):
    cached_tokens: Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count | None = None
    prompt_tokens_details: _PromptDetails | None = None


class UsageEvent(ServerEvent):
    """An event of a completion, which may tell its usage."""

    usage: _Usage | None = None

    @property
    def prompt_tokens(self) -> int | None:
        return self.usage and self.usage.prompt_tokens

    @property
    def cached_tokens(self) -> int | None:
        details = self.usage and self.usage.prompt_tokens_details
        return details.cached_tokens if details else None


def parameters(sampling: Sampling) -> dict[str, Any]:
    return {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p or LEAST_TOP_P,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
    }


class Sample(msgspec.Struct, frozen=True):
    """One line: a name, its labels and a value, from 0 to MOST."""

    name: str
    labels: Mapping[str, str]
    value: float

    def label(self, name: str) -> int:
        """A label's whole number; 0 where it is none."""
        text = self.labels.get(name, "")
        return min(int(text), MOST) if text.isascii() and text.isdigit() and len(text) <= 16 else 0


def read_page(body: bytes, names: Collection[str]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {name: [] for name in names}
    starts = tuple(name.encode() for name in names)
    lines = body[: body.rfind(b"\n") + 1].splitlines()  # a page that is cut off ends in half a number
    for line in islice((line for line in lines if line.startswith(starts)), MAX_SAMPLES):
        try:
            samples = [each for family in text_string_to_metric_families(line.decode()) for each in family.samples]
        except (ValueError, LookupError):
            continue
        for name, labels, value, *_ in samples:
            if name in found and math.isfinite(value):
                found[name].append(Sample(name, labels, min(max(value, 0.0), MOST)))
    return found


def total(samples: Collection[Sample]) -> int:
    return min(int(sum(each.value for each in samples)), MOST)


def mean(samples: Collection[Sample]) -> float:
    return sum(each.value for each in samples) / len(samples) if samples else 0.0


def prompt_json(generation: Generation) -> msgspec.Raw:
    """The ids of a generation's prompt as a JSON array."""
    prompt = generation.prompt
    if not isinstance(prompt, array) or len(prompt) < BLOCK_IDS:
        return msgspec.Raw(b"[%b]" % _id_list(list(prompt)))
    whole = len(prompt) // BLOCK_IDS * BLOCK_IDS
    packed, size = memoryview(prompt)[:whole].cast("B"), BLOCK_IDS * prompt.itemsize
    blocks = [
        block_json(generation.cache_salt, prompt.typecode, bytes(packed[start : start + size]))
        for start in range(0, len(packed), size)
    ]
    if whole < len(prompt):
        blocks.append(_id_list(prompt[whole:].tolist()))
    return msgspec.Raw(b"[%b]" % b",".join(blocks))


@lru_cache(maxsize=MOST_BLOCKS)
def block_json(salt: str | None, typecode: str, packed: bytes) -> bytes:
    return _id_list(array(typecode, packed).tolist())


def _id_list(ids: list[int]) -> bytes:
    return _ENCODE(ids)[1:-1]
