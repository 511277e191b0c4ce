"""An hour of everything that clients do, at a share of what a process can do and at the cap of its store: what it holds
and how late its loop is, all along.

    scripts/bench soak [--check] [--minutes 60]

A real `harmonium serve` on the demo engine, with the embedded server as its Redis. Clients create, stream, continue,
fork, retrieve, list and delete, follow background responses and cancel some, with the official SDK; for how long they
rest follows the process's CPU, which is 70 % of a core in the mean. Growth is the mean of the last quarter of the time,
of that of the second one, as caches fill and the cap is met in the first. A test does the same and checks the store
with fsck (tests/together/test_soak.py).
"""

import argparse
import sys
import tempfile
from pathlib import Path

import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._told import Target, all_met  # noqa: E402
from tests.support.service.everything import (  # noqa: E402
    LONG,
    MOST_GROWTH,
    MOST_LAG_SECONDS,
    SAMPLES,
    Everything,
    growth,
    lag_p99,
)
from tests.support.service.process import ServiceProcess  # noqa: E402


async def soak(service: ServiceProcess, seconds: float) -> tuple[Everything, float]:
    """The clients after so many seconds, and how late the loop was in ms, in 99 of 100 looks."""
    with service.redis() as redis:
        clients = Everything(service.url, service.process.pid, redis, seed=7)
        await clients.run(seconds, every=seconds / SAMPLES)
    return clients, 1000 * await lag_p99(service.url)


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="an hour of everything at once")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--minutes", type=float, default=60, help="for how long (60)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        service = ServiceProcess(Path(folder), **LONG)
        try:
            clients, lag = uvloop.run(soak(service, 60 * options.minutes))
        finally:
            service.stop()
    samples = clients.samples
    last = samples[-1]
    print(f"{last.requests:,} requests in {last.seconds:,.0f} s: {dict(clients.done)}, {clients.gone} of what was gone")
    print(f"process {last.process_bytes / 1e6:.1f} MB, Redis {last.redis_bytes / 1e6:.1f} MB")
    judged = [
        Target(
            "the process's memory, last quarter of second",
            growth(samples, lambda each: each.process_bytes),
            MOST_GROWTH,
        ),
        Target("Redis' memory, last quarter of second", growth(samples, lambda each: each.redis_bytes), MOST_GROWTH),
        Target("the loop's lag at p99, ms", lag, 1000 * MOST_LAG_SECONDS),
    ]
    return 0 if all_met(judged) or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
