"""A test's short form and its long one, which runs with `scripts/test --full`, as two rows of its parameters."""

from typing import Any

import pytest


def lengths(short: Any, long: Any, *, seconds: int = 1800, short_seconds: int = 120) -> list[Any]:
    """The rows of a parameter, or of several where they are tuples: one for every run, and one for the long form, with
    the seconds that each may take.
    """
    return [
        pytest.param(*_row(short), marks=pytest.mark.timeout(short_seconds)),
        pytest.param(*_row(long), marks=[pytest.mark.full, pytest.mark.timeout(seconds)]),
    ]


def _row(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
