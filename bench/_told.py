"""What the parts of a benchmark found, how that is told, and what of it is judged."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol


class Target(NamedTuple):
    """A figure that is judged: what it is, its value, and its limit, which is the least where `least`."""

    what: str
    value: float
    limit: float
    least: bool = False

    @property
    def met(self) -> bool:
        """Whether it is."""
        return self.value >= self.limit if self.least else self.value <= self.limit


class Figures(Protocol):
    """What a part measured: a dataclass."""

    def targets(self) -> list[Target]:
        """What is judged."""
        ...

    def lines(self) -> list[str]:
        """What is told."""
        ...


def report(found: Mapping[str, Figures], judged: Sequence[Target]) -> None:
    """Print what each part has to tell, and the targets."""
    for name, figures in found.items():
        print(f"\n{name}\n", *figures.lines(), sep="\n")
    all_met(judged)


def all_met(judged: Sequence[Target]) -> bool:
    """Print the targets; whether all are met."""
    print()
    for each in judged:
        verdict, sign = "met" if each.met else "missed", ">=" if each.least else "<="
        print(f"{verdict}: {each.what}: {each.value:.3f} (target {sign} {each.limit:g})")
    return all(each.met for each in judged)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a table, its columns as wide as they need."""
    cells = [list(columns), *([_cell(each) for each in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]


def _cell(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
