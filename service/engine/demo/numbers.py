"""Numbers that lie within the bounds of a JSON schema."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Span:
    """The numbers from `low` to `high`, the open ends excepted; with a `step` its multiples alone."""

    low: float
    high: float
    open_low: bool
    open_high: bool
    step: float | None
    whole: bool

    @classmethod
    def of(cls, schema: Mapping[str, Any], *, whole: bool) -> "Span":
        """The numbers that a schema of a number, or of a `whole` one, allows."""
        low = max(_bound(schema, "minimum", -math.inf), _bound(schema, "exclusiveMinimum", -math.inf))
        high = min(_bound(schema, "maximum", math.inf), _bound(schema, "exclusiveMaximum", math.inf))
        open_low, open_high = low == schema.get("exclusiveMinimum"), high == schema.get("exclusiveMaximum")
        return cls(low, high, open_low, open_high, schema.get("multipleOf") or None, whole)

    def __contains__(self, number: float) -> bool:
        inside = self.low <= number <= self.high
        edge = (self.open_low and number == self.low) or (self.open_high and number == self.high)
        fitting = not (self.whole and not float(number).is_integer()) and not (self.step and number % self.step)
        return inside and not edge and fitting

    def number(self) -> float:
        """One of them: 1 if that is, or the nearest that is easily written; any where there is none."""
        if self.step:
            multiple = math.ceil(self.low / self.step) * self.step if self.low > -math.inf else self.step
            multiple += self.step if self.open_low and multiple == self.low else 0
            return multiple if multiple <= self.high else math.floor(self.high / self.step) * self.step
        if self.whole:
            least = math.floor(self.low) + 1 if self.open_low else self.low
            most = math.ceil(self.high) - 1 if self.open_high else self.high
            least = math.ceil(least) if least > -math.inf else least
            most = math.floor(most) if most < math.inf else most
            return int(max(least, min(1, most)))
        near = (1, 0, self.low, self.high, self.low + 1, self.high - 1, (self.low + self.high) / 2)
        return next((number for number in near if math.isfinite(number) and number in self), self.low)


def _bound(schema: Mapping[str, Any], key: str, missing: float) -> float:
    value = schema.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else missing
