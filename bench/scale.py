"""How far it goes: what a stored turn costs processes and Redis, one node or three, and what that makes of a million to
a hundred million conversations over up to 256 shards and 16 nodes.

    scripts/bench scale [--check] [--plots docs/plots]

Measured are stored creates of 64 tokens, eight at once, before a stub engine whose answers cost nothing: one process
and two before one Redis, and one before a cluster of three nodes, by turns. The rest is arithmetic on that
(bench/_scaling.py). A real cluster shows whether it is right at its size: how much of the work its busiest node has is
reckoned from where the shards lie, and measured.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._harness import HOST, cpu_seconds, free_port  # noqa: E402
from bench._peers.load import Cell, check_whole, post, run  # noqa: E402
from bench._peers.servers import OTHER_CORE, SERVER_CORE, Peer, Place  # noqa: E402
from bench._plots import scaled  # noqa: E402
from bench._scaling import GIB, Costs, Demand, Machine, grid, smallest  # noqa: E402
from bench._scaling import NODES as NODE_COUNTS  # noqa: E402
from bench._told import Target, all_met, table  # noqa: E402
from tests.support.store.servers import cluster, server  # noqa: E402

CONCURRENCY = 8
REQUESTS = 400
ROUNDS = 5
SHARDS = 16
NODES = 3
MOST_OFF = 0.2
"""By how much the busiest node's share may be off what is reckoned."""

MOST_OVERHEAD = 1.05
"""How much more of their own CPU two processes may take for the same work than one."""

DEMANDS = (Demand(1_000_000), Demand(10_000_000), Demand(100_000_000))
MACHINE = Machine()
MACHINES = {
    "64 GiB": MACHINE,
    "256 GiB": Machine(256 * GIB),
    "any, with an archive": Machine(1 << 60),
}
"""Nodes of Redis. With an archive only what is in use has to be in memory."""

TURN_BYTES = 2_760
"""A turn of 200 tokens at depth 10 holds so many bytes of Redis (docs/performance.md)."""


@dataclass(frozen=True)
class Row:
    """What a stored create took, in µs, and how many came a second."""

    what: str
    process_us: float
    redis_us: float
    rate: float


@dataclass(frozen=True)
class Found:
    """All that was measured: how many times the CPU of one process two took, and the share of the busiest node."""

    rows: Sequence[Row]
    overhead: float
    busiest: float
    reckoned: float

    @property
    def off(self) -> float:
        """By how much what is reckoned of the busiest node was off."""
        return abs(self.busiest / self.reckoned - 1)


class Rig:
    """Services before a stub engine, and what they stored their turns in."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._engine = free_port()
        command = [sys.executable, "-m", "bench._peers.engine", str(self._engine)]
        url = f"http://{HOST}:{self._engine}/v1/models"
        place.start("engine", command, core=OTHER_CORE, env={"PYTHONPATH": str(ROOT)}, url=url)

    def service(self, name: str, redis_url: str) -> Peer:
        """One more process."""
        port = free_port()
        env = {
            "PYTHONPATH": str(ROOT),
            "HARMONIUM_PORT": str(port),
            "HARMONIUM_REDIS_URL": redis_url,
            "HARMONIUM_SHARDS": str(SHARDS),
            "HARMONIUM_ENGINE": "vllm",
            "HARMONIUM_ENGINE_URL": f"http://{HOST}:{self._engine}",
            "HARMONIUM_DATA_DIR": str(self._place.folder / name),
        }
        command = [sys.executable, "-m", "service", "serve"]
        pid = self._place.start(name, command, core=SERVER_CORE, env=env, url=f"http://{HOST}:{port}/ready")
        return Peer(name, port, "stub", pid, self._engine)


async def creates(peers: Sequence[Peer], count: int) -> list[Cell]:
    """Stored creates, as many of each of some processes at the same time, and as many at once."""
    each = partial(run, at_once=CONCURRENCY, count=count // len(peers), check=check_whole)
    return await asyncio.gather(*(each(peer, partial(post, peer, {})) for peer in peers))


async def measure(single: Sequence[Peer], redis: int, spread: Peer, nodes: Sequence[int], reckoned: float) -> Found:
    """Each way by turns, after a warm-up."""
    ways: dict[str, tuple[Sequence[Peer], Sequence[int]]] = {
        "one process, one Redis": (single[:1], [redis]),
        "two processes, one Redis": (single, [redis]),
        f"one process, {NODES} nodes": ([spread], nodes),
    }
    rows: dict[str, list[Row]] = {what: [] for what in ways}
    shares: list[float] = []
    for number in range(ROUNDS + 1):
        for what, (peers, stores) in ways.items():
            before = [cpu_seconds(pid) for pid in stores]
            cells = await creates(peers, REQUESTS)
            took = [cpu_seconds(pid) - at for pid, at in zip(stores, before, strict=True)]
            if not number:
                continue
            done = sum(len(cell.seconds) for cell in cells)
            process = 1e6 * sum(cell.cpu_seconds for cell in cells) / done
            rows[what].append(Row(what, process, 1e6 * sum(took) / done, sum(cell.rate for cell in cells)))
            if len(stores) > 1:
                shares.append(max(took) / sum(took))
    one, two = rows["one process, one Redis"], rows["two processes, one Redis"]
    return Found(
        [_medians(each) for each in rows.values()],
        median(b.process_us / a.process_us for a, b in zip(one, two, strict=True)),
        median(shares),
        reckoned,
    )


def _medians(rows: Sequence[Row]) -> Row:
    def of(figure: Callable[[Row], float]) -> float:
        return median(map(figure, rows))

    return Row(
        rows[0].what, of(lambda each: each.process_us), of(lambda each: each.redis_us), of(lambda each: each.rate)
    )


@contextmanager
def measured() -> Iterator[Found]:
    """What was found, while all of it still runs."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        place, one = Place(folder, stack), stack.enter_context(server(folder, "--appendonly", "yes", "--save", ""))
        several = stack.enter_context(cluster(folder, "--appendonly", "yes"))
        rig = Rig(place)
        single = [rig.service(f"single-{number}", f"redis://{one.address}") for number in range(2)]
        spread = rig.service("spread", several.url)
        owners = [several.owner(f"harmonium:{{{shard:02x}}}:store").port for shard in range(SHARDS)]
        reckoned = max(owners.count(node.port) for node in several.primaries) / SHARDS
        nodes = [node.process.pid for node in several.primaries]
        yield uvloop.run(measure(single, one.process.pid, spread, nodes, reckoned))


def report(found: Found, costs: Costs) -> None:
    """Print the tables."""
    rows = [(each.what, each.process_us, each.redis_us, each.rate) for each in found.rows]
    print(*table(("stored creates", "CPU us", "Redis us", "a second"), rows), sep="\n")
    print(f"\nthe busiest of {NODES} nodes: {found.busiest:.1%} of Redis' CPU, reckoned {found.reckoned:.1%}\n")
    plans: list[list[object]] = []
    for demand in DEMANDS:
        for memory, machine in MACHINES.items():
            deployment, first, load = smallest(costs, demand, machine)
            carried = (deployment.nodes, deployment.shards, deployment.processes, f"{first.value}, {load:.0%} of it")
            plans.append([f"{demand.conversations:,}", round(demand.turns_a_second), memory, *carried])
    columns = ("conversations", "turns/s", "a node's memory", "nodes", "shards", "processes", "full first")
    print(*table(columns, plans), sep="\n")
    wide: dict[int, list[object]] = {}
    for shards, _, by_hand, by_itself in grid(costs, DEMANDS[1], MACHINE):
        wide.setdefault(shards, [shards]).append(f"{by_hand:,.0f} / {by_itself:,.0f}")
    print("\nturns/s that Redis takes, shards placed by hand / by the cluster\n")
    print(*table(("shards", *(f"{nodes} nodes" for nodes in NODE_COUNTS)), wide.values()), sep="\n")


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="how far it goes")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--plots", type=Path, help="draw what is reckoned into this folder")
    options = parser.parse_args()
    with measured() as found:
        one = found.rows[0]
        costs = Costs(TURN_BYTES, one.redis_us / 1e6, one.process_us / 1e6)
        report(found, costs)
    if options.plots is not None:
        scaled(list(grid(costs, DEMANDS[1], MACHINE)), options.plots)
    judged = [
        Target("the busiest node's share, off what is reckoned", found.off, MOST_OFF),
        Target("CPU of two processes, of one", found.overhead, MOST_OVERHEAD),
    ]
    return 0 if all_met(judged) or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
