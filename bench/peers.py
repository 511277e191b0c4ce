"""The service beside another gateway, on one core each: what a request and a token cost, and how long they take.

    scripts/bench peers [--check] [--quick] [--json]

Both stand before the same stub engines, whose answers cost nothing and are always the same 64 tokens; the text
of every answer is compared with what the engine said. What is measured takes turns within a round, in another order
each time, so that other load on the machine affects all alike; a ratio is the median of the rounds' own. Each gateway
runs on one core, and the engines, stores and the client on another.

`harmonium` and `smg` (the Shepherd model gateway, in Rust, before an engine over gRPC) speak Harmony themselves and
keep what was said in a Redis.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median

import uvloop

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench._peers.load import (  # noqa: E402
    Cell,
    Connection,
    check_page,
    check_stream,
    check_unchanged,
    check_whole,
    create,
    etag,
    get,
    percentile,
    post,
    run,
)
from bench._peers.servers import OURS, SMG, Peer, running  # noqa: E402
from bench._told import Target, all_met, table  # noqa: E402

PACE_MS = 5
STREAMS = (8, 64, 256)
TIMED = 64
"""At how many streams the first event and the first text are judged."""

DEPTHS = (1, 50, 1000)
RIVALS_DEEPEST = 50
"""The deepest chain of a rival: each walks it turn by turn, again for each request."""

LONG = 200
"""Turns of the chain whose items are listed."""

STORED = 20
"""Responses that are read in turn."""

MOST_CREATE, MOST_STREAM_8, MOST_STREAM_256, LEAST_GETS, LEAST_AGAIN = 1.0, 1.3, 0.95, 0.6, 1.5
MOST_CHAIN_MS, MOST_AT_50, MOST_AT_1000 = 0.7, 1.15, 1.5
MOST_PAGE = 2.0
MOST_STORE_US = 60.0

Check = Callable[[Connection], None]


@dataclass
class Row:
    """What is measured of each gateway: by its name the cells of all rounds."""

    at_once: int
    count: int
    cells: dict[str, list[Cell]] = field(default_factory=dict[str, list[Cell]])

    def of(self, name: str, figure: Callable[[Cell], float]) -> float:
        """The median of a figure."""
        return median(map(figure, self.cells[name]))

    def ratio(self, figure: Callable[[Cell], float], other: "Row | None" = None) -> float:
        """The median of the rounds' ratios of ours to smg's, in another row where that is given."""
        theirs = (other or self).cells[SMG]
        return median(figure(one) / figure(two) for one, two in zip(self.cells[OURS], theirs, strict=True))


class Measured:
    """All rows by their names, of gateways that run."""

    def __init__(self, peers: Sequence[Peer], rounds: int, share: float) -> None:
        """`share` is how much of the requests is sent."""
        self.rows: dict[str, Row] = {}
        self._peers, self._rounds, self._share = peers, rounds, share
        self._made: dict[tuple[str, int], list[str]] = {}

    async def all(self) -> None:
        """Measure everything."""
        for peer in self._peers:
            await run(peer, partial(post, peer, {}), at_once=8, count=100, check=check_whole)
            await run(peer, partial(post, peer, {"stream": True}), at_once=8, count=16, check=check_stream)
        await self._row("create", lambda peer: partial(post, peer, {}), check_whole, at_once=8, count=300)
        await self._row("stream at once", self._streams, check_stream, at_once=8, count=100)
        for peer in self._peers:
            peer.pace(PACE_MS)
        for number in STREAMS:
            await self._row(f"stream paced, {number}", self._streams, check_stream, at_once=number, count=4 * number)
        for peer in self._peers:
            peer.pace(0)
        for depth in DEPTHS:
            peers = [peer for peer in self._peers if peer.name == OURS or depth <= RIVALS_DEEPEST]
            await self._grow(peers, depth)
            await self._row(f"turn {depth + 1}", partial(self._next_turn, depth), check_whole, 1, 60, peers)
        await self._grow(self._peers, STORED, chains=False)
        await self._row("GET", self._gets, check_whole, 8, 800)
        ours = [peer for peer in self._peers if peer.name == OURS]
        tags = {id: await etag(peer, id) for peer in ours for id in self._made[peer.name, STORED]}
        await self._row("GET again", partial(self._gets, tags=tags), check_unchanged, 8, 800, ours)
        await self._grow(ours, LONG)
        await self._row("input_items", self._pages, check_page, 8, 400, ours)

    async def _row(
        self,
        name: str,
        requests: Callable[[Peer], Callable[[], bytes]],
        check: Check,
        at_once: int,
        count: int,
        peers: Sequence[Peer] | None = None,
    ) -> None:
        row = self.rows[name] = Row(at_once, max(at_once, round(count * self._share)))
        peers = self._peers if peers is None else peers
        for number in range(self._rounds):
            order = [*peers[number % len(peers) :], *peers[: number % len(peers)]]
            for peer in order:
                cell = await run(peer, requests(peer), at_once=at_once, count=row.count, check=check)
                row.cells.setdefault(peer.name, []).append(cell)
        print(f"{name}: measured", file=sys.stderr)

    @staticmethod
    def _streams(peer: Peer) -> Callable[[], bytes]:
        return partial(post, peer, {"stream": True})

    def _next_turn(self, depth: int, peer: Peer) -> Callable[[], bytes]:
        return partial(post, peer, {"previous_response_id": self._made[peer.name, depth][-1]})

    def _gets(self, peer: Peer, tags: Mapping[str, str] | None = None) -> Callable[[], bytes]:
        known = {id: f"if-none-match: {tag}\r\n" for id, tag in (tags or {}).items()}
        requests = cycle([get(peer, id, known.get(id, "")) for id in self._made[peer.name, STORED]])
        return lambda: next(requests)

    def _pages(self, peer: Peer) -> Callable[[], bytes]:
        return partial(get, peer, f"{self._made[peer.name, LONG][-1]}/input_items")

    async def _grow(self, peers: Sequence[Peer], count: int, *, chains: bool = True) -> None:
        """So many responses of each gateway, one behind the other if they are `chains`."""
        for peer in peers:
            ids: list[str] = []
            for _ in range(count):
                ids.append(await create(peer, ids[-1] if ids and chains else None))
            self._made[peer.name, count] = ids


def targets(rows: dict[str, Row]) -> Iterator[Target]:
    """What is judged."""
    yield Target("CPU of a stored create, of smg's", rows["create"].ratio(_cpu), MOST_CREATE)
    for number, most in zip(STREAMS, (MOST_STREAM_8, MOST_STREAM_8, MOST_STREAM_256), strict=True):
        ratio = rows[f"stream paced, {number}"].ratio(_cpu)
        yield Target(f"CPU of a streamed token, {number} paced streams, of smg's", ratio, most)
    timed = rows[f"stream paced, {TIMED}"]
    for part in (0.5, 0.99):
        for what, figure in (("event", _first_event), ("text", _first_text)):
            ratio = timed.ratio(partial(figure, part))
            yield Target(f"first {what} at p{part * 100:g}, {TIMED} paced streams, of smg's", ratio, 1.0)
    first, *deeper = (rows[f"turn {depth + 1}"].of(OURS, _cpu) for depth in DEPTHS)
    yield Target("CPU of a turn behind one other, in ms", first / 1000, MOST_CHAIN_MS)
    for depth, cpu, most in zip(DEPTHS[1:], deeper, (MOST_AT_50, MOST_AT_1000), strict=True):
        yield Target(f"the same behind {depth}, of that", cpu / first, most)
    yield Target("GETs a second, of smg's", rows["GET"].ratio(_rate), LEAST_GETS, least=True)
    again = rows["GET again"].ratio(_rate, rows["GET"])
    yield Target("the same of what the client has (304), of smg's GETs", again, LEAST_AGAIN, least=True)
    page = rows["input_items"].of(OURS, _cpu) / rows["GET"].of(OURS, _cpu)
    yield Target(f"CPU of a page of the items of {LONG} turns, of a GET's", page, MOST_PAGE)
    yield Target("Redis' CPU of a stored create, in us", rows["create"].of(OURS, _store), MOST_STORE_US)


def _cpu(cell: Cell) -> float:
    return cell.cpu_us


def _token(cell: Cell) -> float:
    return cell.token_us


def _store(cell: Cell) -> float:
    return cell.store_us


def _rate(cell: Cell) -> float:
    return cell.rate


def _whole(part: float, cell: Cell) -> float:
    return percentile(cell.seconds, part)


def _first_event(part: float, cell: Cell) -> float:
    return percentile(cell.first_event, part)


def _first_text(part: float, cell: Cell) -> float:
    return percentile(cell.first_text, part)


COLUMNS = ("", "CPU us", "a token", "Redis us", "a second", "p50 ms", "p99 ms", "event p50", "p99", "text p50", "p99")


def lines(rows: dict[str, Row]) -> Iterator[str]:
    """A table for each row."""
    for what, row in rows.items():
        yield f"\n{what}, {row.at_once} at once, {row.count} requests a round"
        told: list[list[object]] = []
        for name in row.cells:
            of = partial(row.of, name)
            streams = what.startswith("stream")
            told.append(
                [
                    name,
                    of(_cpu),
                    of(_token) if streams else "",
                    of(_store) or "",
                    of(_rate),
                    *(of(partial(_whole, part)) for part in (0.5, 0.99)),
                    *((of(partial(_first_event, part)) if streams else "") for part in (0.5, 0.99)),
                    *((of(partial(_first_text, part)) if streams else "") for part in (0.5, 0.99)),
                ]
            )
        yield from table(COLUMNS, told)


def in_short(rows: dict[str, Row], held: Mapping[str, float]) -> Iterator[str]:
    """What a person wants to know, of the two that do the same work, as a table of Markdown."""
    create, turn, gets = rows["create"], rows[f"turn {RIVALS_DEEPEST + 1}"], rows["GET"]
    timed = rows[f"stream paced, {TIMED}"]

    def row(what: str, said: Callable[[str], str]) -> str:
        return f"| {what} | {said(OURS)} | {said(SMG)} |"

    def tokens(name: str) -> str:
        return ", ".join(f"{rows[f'stream paced, {number}'].of(name, _token):.0f}" for number in STREAMS)

    def began(name: str) -> str:
        return " and ".join(f"{timed.of(name, partial(_first_event, part)):.0f}" for part in (0.5, 0.99))

    yield from ("| What | harmonium | smg 1.13 (Rust) |", "| --- | --- | --- |")
    yield row("Stored answers a second, 8 at once", lambda name: f"{create.of(name, _rate):,.0f}")
    yield row(
        f"A turn after {RIVALS_DEEPEST} others: time to the answer, CPU",
        lambda name: f"{turn.of(name, partial(_whole, 0.5)):.1f} ms, {turn.of(name, _cpu) / 1000:.1f} ms",
    )
    at_once = rows["stream at once"]
    yield row(
        "CPU for a streamed token, with an engine that sends without a pause",
        lambda name: f"{at_once.of(name, _token):.0f} µs",
    )
    streams = ", ".join(map(str, STREAMS))
    yield row(f"The same, a token every {PACE_MS} ms: {streams} streams", lambda name: f"{tokens(name)} µs")
    yield row(f"First event of {TIMED} streams that begin at once, p50 and p99", lambda name: f"{began(name)} ms")
    yield row("Stored responses read a second", lambda name: f"{gets.of(name, _rate):,.0f}")
    yield row("Memory of the process, after all these runs", lambda name: f"{held[name]:.0f} MB")


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="the service beside another gateway")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--quick", action="store_true", help="two rounds of a quarter of the requests")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (5)")
    parser.add_argument("--json", action="store_true", help="print the medians as JSON instead")
    options = parser.parse_args()
    rounds, share = (2, 0.25) if options.quick else (options.rounds, 1.0)
    with running() as peers:
        measured = Measured(peers, rounds, share)
        uvloop.run(measured.all())
        held = {peer.name: peer.held_bytes() / 1e6 for peer in peers}
    rows = measured.rows
    judged = list(targets(rows))
    if options.json:
        medians = {
            what: {name: {"cpu_us": row.of(name, _cpu), "rate": row.of(name, _rate)} for name in row.cells}
            for what, row in rows.items()
        }
        print(json.dumps({"rows": medians, "held_mb": held, "targets": [each._asdict() for each in judged]}))
    else:
        print(*in_short(rows, held), *lines(rows), sep="\n")
        print("\nresident memory in the end, MB:", ", ".join(f"{name} {mb:.0f}" for name, mb in held.items()))
        all_met(judged)
    return 0 if all(each.met for each in judged) or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
