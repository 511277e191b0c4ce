"""Sizes and times that may have a unit: `4GiB`, `512MB`, `15m`, `30d`. A bare number is in the unit of the setting's
name, as every setting that ends with `_bytes`, `_seconds` or `_days` takes them.
"""

import re

from pydantic import ByteSize, TypeAdapter

KIB = 1024
MIB = 1024 * KIB

DAY_SECONDS = 86_400

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": DAY_SECONDS, "w": 7 * DAY_SECONDS}
_TIME = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_SECONDS)})", re.IGNORECASE)
_BARE = re.compile(r"\s*[+-]?[\d._]+(e[+-]?\d+)?\s*", re.IGNORECASE)
_SIZE = re.compile(r"\s*\d+(\.\d+)?\s*([kmgtp](ib|b)?|b)\s*", re.IGNORECASE)
_BYTES: TypeAdapter[ByteSize] = TypeAdapter(ByteSize)

EXAMPLES = {"_bytes": "4GiB", "_seconds": "15m", "_days": "30d"}
"""Examples of values with a unit, by the ending of the setting's name."""


def unit_of(name: str) -> str | None:
    return next((end for end in EXAMPLES if name.endswith(end)), None)


def in_unit(name: str, value: object) -> object:
    """`value` in the unit of the setting `name`; a value that is no text with a unit stays. Raises ValueError."""
    unit = unit_of(name)
    if unit is None or not isinstance(value, str) or _BARE.fullmatch(value):
        return value
    return size(value) if unit == "_bytes" else _time(value, DAY_SECONDS if unit == "_days" else 1)


def with_unit(count: int) -> str:
    """A number of bytes as it may be written: with the largest unit that it is a multiple of."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count and count % 1024**power == 0:
            return f"{count // 1024**power}{unit}"
    return str(count)


def size(text: str) -> int:
    if not _SIZE.fullmatch(text):  # pydantic would pass over what follows
        raise ValueError("should be a number of bytes, or one with a unit: KiB, MiB, GiB, TiB, or kB, MB, GB, TB")
    return int(_BYTES.validate_python(text.strip()))


def _time(text: str, unit_seconds: int) -> float:
    found = _TIME.fullmatch(text.strip())
    if not found:
        raise ValueError(f"should be a number, or one with a unit: {', '.join(_SECONDS)}")
    value = float(found[1]) * _SECONDS[found[2].lower()] / unit_seconds
    return int(value) if value.is_integer() else value
