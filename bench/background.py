"""What background responses cost and how soon things happen to them, with real processes and real kills.

    scripts/bench background [--check] [--quick] [--only PART ...] [--server redis] [--json] [--profile]

Each part starts a Redis, an API and workers of its own, so that no part leaves anything to another; what they measure,
and how, is in bench/_background. What is compared runs in turns within a part, so that whatever else the machine does
hits all of it. The client runs in this process or in another, and never in one that is measured.
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

from bench._background import cancel, claim, follow, rate, rescue, retrieve
from bench._background.processes import Bench
from bench._told import Figures, report
from service.commands.serve import allow_files

PARTS: dict[str, Callable[[Bench], Coroutine[Any, Any, Figures]]] = {
    "rescue": rescue.measure,
    "claim": claim.measure,
    "rate": rate.measure,
    "retrieve": retrieve.measure,
    "follow": follow.measure,
    "cancel": cancel.measure,
}
"""In the order in which they run, each on a loop of its own."""


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="what background responses cost, and how soon things happen")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--quick", action="store_true", help="a minute's smoke test; its figures say little")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some parts instead of all")
    parser.add_argument(
        "--server", choices=("embedded", "redis"), default="embedded", help="embedded, or the one on PATH"
    )
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, too")
    parser.add_argument("--profile", action="store_true", help="run what serves under cProfile and print its top rows")
    options = parser.parse_args()
    allow_files(4096)
    found: dict[str, Figures] = {}
    with Progress(transient=True, refresh_per_second=2) as progress:
        bench = Bench(options.server, options.quick, options.profile, progress)
        for name in options.only:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                found[name] = runner.run(PARTS[name](bench))
    judged = [target for figures in found.values() for target in figures.targets()]
    report(found, judged)
    if options.json:
        print(json.dumps({name: asdict(cast(Any, figures)) for name, figures in found.items()}))
    met = sum(each.met for each in judged)
    print(f"background: {met} of {len(judged)} targets met")
    return 0 if met == len(judged) or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
