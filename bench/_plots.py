"""The plots of docs/performance.md, from the figures of bench/store.py: readable on white and on black."""

from pathlib import Path
from typing import Any, cast

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#808080"
COLOURS = ("#3b82f6", "#f97316", "#10b981")
SIZE_INCHES = (6.4, 3.2)

STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "harmonium",  # the same figures make the same file
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=COLOURS),
    "lines.marker": "o",
    "grid.color": INK,
    "grid.alpha": 0.25,
    "axes.grid": True,
    "legend.frameon": False,
    "savefig.transparent": True,
}

Figures = dict[str, Any]
"""What bench/store.py measured, as its dataclasses have it."""


def draw(found: Figures, folder: Path) -> None:
    """Write one SVG for each plot."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = {
        "append": append,
        "ratio": ratio,
        "touch": touch,
        "held": held,
        "cache": cache,
    }
    with mpl.rc_context(cast(Any, STYLE)):
        for name, plot in plots.items():
            figure = Figure(figsize=SIZE_INCHES, layout="constrained")
            axes = figure.add_subplot()
            axes.set_xscale("log")
            plot(axes, found)
            axes.set_ylim(bottom=0)
            axes.legend()
            figure.savefig(folder / f"store-{name}.svg", metadata={"Date": None})


def append(axes: Axes, found: Figures) -> None:
    """CPU of an append that evicts, against the turns stored."""
    for colour, (size, rows) in zip(COLOURS, _by_size(found), strict=False):
        turns = _each(rows, "turns")
        axes.plot(turns, _each(rows, "append"), color=colour, label=f"append, {size:,} bytes a turn")
        axes.plot(turns, _each(rows, "plain"), "--", color=colour, label=f"plain writes, {size:,} bytes a turn")
    axes.set(xlabel="turns stored", ylabel="server CPU, µs")


def ratio(axes: Axes, found: Figures) -> None:
    """An append's CPU as a multiple of the plain writes'."""
    for colour, (size, rows) in zip(COLOURS, _by_size(found), strict=False):
        turns = _each(rows, "turns")
        axes.plot(turns, _each(rows, "ratio"), color=colour, label=f"one at a time, {size:,} bytes a turn")
        axes.plot(turns, _each(rows, "busy_ratio"), "--", color=colour, label=f"ten at once, {size:,} bytes a turn")
    axes.set(xlabel="turns stored", ylabel="multiple of the plain writes")


def touch(axes: Axes, found: Figures) -> None:
    """Server time of a touch, against the depth of the turn."""
    axes.plot(list(found["touch"]), list(found["touch"].values()), label="touch")
    axes.set(xlabel="turns from the root", ylabel="server time, µs")


def held(axes: Axes, found: Figures) -> None:
    """Bytes held for each byte of payload, against the size of a turn."""
    for shape in dict.fromkeys(row["shape"] for row in found["held"]):
        rows = [row for row in found["held"] if row["shape"] == shape]
        axes.plot(_each(rows, "size"), _each(rows, "held"), label=shape)
    axes.set(xlabel="payload of a turn, bytes", ylabel="bytes held per byte")


def cache(axes: Axes, found: Figures) -> None:
    """The time to read a chain with the read cache and without."""
    for name, label in (("plain_ms", "without the read cache"), ("cached_ms", "from the read cache")):
        axes.plot(_each(found["cached"], "turns"), _each(found["cached"], name), label=label)
    axes.set(xlabel="turns of the chain", ylabel="time to read, ms")


def _by_size(found: Figures) -> list[tuple[int, list[Figures]]]:
    sizes = dict.fromkeys(row["size"] for row in found["levels"])
    return [(size, [row for row in found["levels"] if row["size"] == size]) for size in sizes]


def _each(rows: list[Figures], name: str) -> list[float]:
    return [row[name] for row in rows]


def soaked(samples: list[dict[str, Any]], folder: Path) -> None:
    """What a soak saw all along (bench/soak.py): memory, and the share of a core."""
    folder.mkdir(parents=True, exist_ok=True)
    minutes = [each["seconds"] / 60 for each in samples]
    with mpl.rc_context(cast(Any, {**STYLE, "lines.marker": ""})):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        axes = figure.add_subplot()
        axes.plot(minutes, [each["process_bytes"] / 1e6 for each in samples], label="the process, MB")
        axes.plot(minutes, [each["redis_bytes"] / 1e6 for each in samples], label="Redis, MB")
        axes.plot(minutes, [100 * each["share"] for each in samples], label="of a core, %")
        axes.set_xlabel("minutes")
        axes.set_ylim(bottom=0)
        axes.legend()
        figure.savefig(folder / "soak.svg", metadata={"Date": None})


def scaled(grid: list[tuple[int, int, float, float]], folder: Path) -> None:
    """Turns a second that Redis takes, by shards and nodes (bench/scale.py)."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(cast(Any, {**STYLE, "axes.prop_cycle": cycler(color=(*COLOURS, "#a855f7", "#eab308"))})):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        axes = figure.add_subplot()
        for shards in dict.fromkeys(each[0] for each in grid):
            points = [(nodes, by_hand) for of, nodes, by_hand, _ in grid if of == shards]
            axes.plot(*zip(*points, strict=True), label=f"{shards} shards")
        axes.set_xscale("log", base=2)
        axes.set_xticks([nodes for of, nodes, *_ in grid if of == grid[0][0]], [str(each[1]) for each in grid[:5]])
        axes.set_xlabel("nodes of Redis")
        axes.set_ylabel("turns a second")
        axes.set_ylim(bottom=0)
        axes.legend()
        figure.savefig(folder / "scale.svg", metadata={"Date": None})
