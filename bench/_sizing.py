"""What a deployment has to be, from what one turn and one request cost: arithmetic, and a simulation of the placement.

Pure: no server is asked. Figures come in, as bench/capacity.py measured them; how many nodes, shards and processes that
makes goes out. Shards lie on a cluster's nodes by the hash slots of their own key names, as Redis places them.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from redis.crc import key_slot

from store.keys import MAX_SHARDS

GIB = 1 << 30
SLOTS = 16_384
DAY_SECONDS = 86_400

LEAST_SHARDS = 16
"""With so few a store can later be spread over some nodes without a migration."""


@dataclass(frozen=True)
class Costs:
    """What was measured: bytes of Redis a turn, and its CPU and a process's CPU for a stored turn, in seconds."""

    turn_bytes: float
    redis_seconds: float
    process_seconds: float


@dataclass(frozen=True)
class Demand:
    """What is asked for: conversations that are kept, turns in each, and days in which they come. `peak` is how many
    times the mean the busiest moment has."""

    conversations: int
    turns: int = 10
    days: float = 30
    peak: float = 5

    @property
    def turns_kept(self) -> int:
        """All turns that are stored."""
        return self.conversations * self.turns

    @property
    def turns_a_second(self) -> float:
        """Turns that come at the busiest moment, where as many expire as come."""
        return self.peak * self.turns_kept / (self.days * DAY_SECONDS)


@dataclass(frozen=True)
class Machine:
    """A node of Redis: its memory in bytes, and what part of it conversations may have. The rest is for event logs,
    for connections, and for what is copied while its file is rewritten."""

    memory: int = 64 * GIB
    part: float = 0.6

    @property
    def room(self) -> float:
        """Bytes of conversations that it holds."""
        return self.memory * self.part


@dataclass(frozen=True)
class Plan:
    """What the demand takes."""

    gib: float
    """All conversations together."""
    shards: int
    shard_gib: float
    """What the fullest shard comes to: HARMONIUM_MAX_BYTES has to be more."""
    nodes: int
    """Of Redis, without replicas."""
    shards_a_node: int
    """The most that fit, where they are placed evenly by hand."""
    by_itself: int
    """The most that one node gets where the cluster gives each node as many slots, in order."""
    redis_cores: float
    processes: int


def busiest_node(shards: int, nodes: int) -> int:
    """The most shards on one node of a cluster that shares the slots evenly among its nodes, in order."""
    slots = (key_slot(f"harmonium:{{{shard:02x}}}:store".encode()) for shard in range(shards))
    return max(Counter(slot * nodes // SLOTS for slot in slots).values())


def fullest_shard(conversations: int, shards: int, chance: random.Random) -> float:
    """How many times the mean the fullest shard has, where conversations of uneven length begin in random shards.

    Lengths are log-normal: one in a hundred is ten times the median. A shard's sum is drawn from the normal
    distribution that the sum of so many comes to.
    """
    mean, variance = math.exp(0.5), (math.e - 1) * math.e
    each = conversations / shards
    counts = (chance.gauss(each, math.sqrt(each)) for _ in range(shards))
    return max(chance.gauss(count * mean, math.sqrt(count * variance)) for count in counts) / (each * mean)


def plan(costs: Costs, demand: Demand, machine: Machine, chance: random.Random) -> Plan:
    """The fewest nodes whose memory holds the demand, and processes that use a core each at the busiest moment.

    There are four shards for each node, so that they can be placed evenly, and LEAST_SHARDS at least, as what is
    stored never changes its shard. Raises ValueError where not even one shard fits on a node.
    """
    total = costs.turn_bytes * demand.turns_kept
    wanted = 4 * math.ceil(total / machine.room)
    shards = min(MAX_SHARDS, max(LEAST_SHARDS, 1 << math.ceil(math.log2(wanted))))
    shard = total / shards * fullest_shard(demand.conversations, shards, chance)
    fit = min(shards, math.floor(machine.room / shard))
    if not fit:
        raise ValueError(f"one of {shards} shards has {shard / GIB:.1f} GiB, which no node has room for")
    nodes = math.ceil(shards / fit)
    return Plan(
        gib=total / GIB,
        shards=shards,
        shard_gib=shard / GIB,
        nodes=nodes,
        shards_a_node=math.ceil(shards / nodes),
        by_itself=busiest_node(shards, nodes),
        redis_cores=costs.redis_seconds * demand.turns_a_second,
        processes=max(1, math.ceil(costs.process_seconds * demand.turns_a_second)),
    )


@dataclass(frozen=True)
class ArchiveCosts:
    """What was measured of an archive: bytes of a turn in a value and in SQLite's files, and a process's CPU to archive
    one, in seconds.
    """

    value_bytes: float
    file_bytes: float
    process_seconds: float


@dataclass(frozen=True)
class ArchivePlan:
    """What the demand takes where one node of Redis has what is in use and an archive has all."""

    hours: float
    """Of how long the node has the turns, where they come as at the busiest moment; else it is up to `peak` times as
    long.
    """
    objects_gib: float
    files_gib: float
    puts: float
    """In 30 days, where each conversation is one session: it is written once."""
    cores: float
    """Of processes that archive, at the busiest moment."""


def plan_archive(costs: Costs, archive: ArchiveCosts, demand: Demand, machine: Machine) -> ArchivePlan:
    """What an archive makes of a demand."""
    return ArchivePlan(
        hours=machine.room / (costs.turn_bytes * demand.turns_a_second) / 3600,
        objects_gib=archive.value_bytes * demand.turns_kept / GIB,
        files_gib=archive.file_bytes * demand.turns_kept / GIB,
        puts=demand.conversations * 30 / demand.days,
        cores=archive.process_seconds * demand.turns_a_second,
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns, right-aligned but for the first."""
    widths = [max(len(row[place]) for row in (heads, *rows)) for place in range(len(heads))]
    return "\n".join(
        " ".join(
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (heads, *rows)
    )
