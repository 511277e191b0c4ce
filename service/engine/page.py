"""A page of metrics in Prometheus' text format, as servers give it: the few samples of it that are asked for.

A page may be long, cut off, or none at all. A line that can't be read is passed over, and never more read than that.
"""

import math
from collections.abc import Collection, Mapping
from itertools import islice

import msgspec
from prometheus_client.parser import text_string_to_metric_families

MAX_SAMPLES = 512
"""How many samples are read of a page: each of a few names, for each engine in a server and each model."""

MOST = 1 << 40
"""No sample counts for more."""


class Sample(msgspec.Struct, frozen=True):
    """One line: a name, its labels and a value, from 0 to MOST."""

    name: str
    labels: Mapping[str, str]
    value: float

    def label(self, name: str) -> int:
        """What a label says as a whole number; 0 where it says none."""
        text = self.labels.get(name, "")
        return min(int(text), MOST) if text.isascii() and text.isdigit() and len(text) <= 16 else 0


def read_page(body: bytes, names: Collection[str]) -> dict[str, list[Sample]]:
    """The samples with these names, by name."""
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
    """The sum of some, as a whole number."""
    return min(int(sum(each.value for each in samples)), MOST)


def mean(samples: Collection[Sample]) -> float:
    """The mean of some; 0 of none."""
    return sum(each.value for each in samples) / len(samples) if samples else 0.0
