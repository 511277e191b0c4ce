"""The plots of background responses in docs/performance.md, from the figures of bench/background.py."""

from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench._plots import COLOURS, INK, SIZE_INCHES, STYLE

Figures = dict[str, Any]
"""What bench/background.py measured, as its dataclasses have it."""


def draw(found: Figures, folder: Path) -> None:
    """Write one SVG for each part that has one."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = {"rate": rate, "retrieve": retrieve}
    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        for name, plot in plots.items():
            if name in found:
                figure = Figure(figsize=SIZE_INCHES, layout="constrained")
                plot(figure.add_subplot(), found[name])
                figure.savefig(folder / f"background-{name}.svg", metadata={"Date": None})


def rate(axes: Axes, found: Figures) -> None:
    """Jobs a second through one worker process, by who ran them."""
    rates = {name: median(each) for name, each in found["rates"].items()}
    bars = axes.barh(list(rates), list(rates.values()), color=[COLOURS[0], *[INK] * (len(rates) - 1)])
    axes.bar_label(bars, fmt="{:,.0f}", padding=4, color=INK)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="jobs a second")


def retrieve(axes: Axes, found: Figures) -> None:
    """The time of a GET against the length of a running response."""
    for batch in dict.fromkeys(row["batch"] for row in found["under_way"]):
        rows = [row for row in found["under_way"] if row["batch"] == batch]
        axes.plot([row["tokens"] for row in rows], [row["get"]["p50"] for row in rows], label=f"{batch} tokens a batch")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel="tokens so far", ylabel="GET, ms, p50")
    axes.set_ylim(bottom=0)
    axes.legend()
