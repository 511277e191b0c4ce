"""The cost of an archive: an append that it hears of, the way there and back, a catalogue, and a million conversations.

    scripts/bench archive [--check] [--quick] [--only PART ...] [--server redis] [--json]

Each part has a Redis of its own and says how it measures (bench/_archive). Without `--quick` the million takes half an
hour, and the rest four minutes.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any, cast

import uvloop
from rich.progress import Progress

from bench._archive import append, back, carry, listed, many
from bench._archive.opened import Bench
from bench._told import Figures, report
from service.commands.serve import allow_files

PARTS: dict[str, Callable[[Bench], Coroutine[Any, Any, Figures]]] = {
    "append": append.measure,
    "carry": carry.measure,
    "back": back.measure,
    "listed": listed.measure,
    "many": many.measure,
}
"""In the order in which they run, each on a loop of its own."""


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="what an archive costs")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--quick", action="store_true", help="a minute's smoke test; its figures say little")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some parts instead of all")
    parser.add_argument(
        "--server", choices=("embedded", "redis"), default="embedded", help="embedded, or the one on PATH"
    )
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, too")
    options = parser.parse_args()
    allow_files(4096)
    found: dict[str, Figures] = {}
    with Progress(transient=True, refresh_per_second=2) as progress:
        bench = Bench(options.server, options.quick, progress)
        for name in options.only:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                found[name] = runner.run(PARTS[name](bench))
    judged = [target for figures in found.values() for target in figures.targets()]
    report(found, judged)
    if options.json:
        print(json.dumps({name: asdict(cast(Any, figures)) for name, figures in found.items()}))
    met = sum(each.met for each in judged)
    print(f"archive: {met} of {len(judged)} targets met")
    return 0 if met == len(judged) or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
