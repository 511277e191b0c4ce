"""How much a deployment can do, from what one turn costs a process and Redis: arithmetic. Pure: no server is asked.

A node of Redis runs commands on one core. Shards lie on the nodes by the slots of their keys, so the node with most of
them is full first; a process is full at one core. Whatever is full first is the bottleneck.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from redis.crc import key_slot

GIB = 1 << 30
SLOTS = 16_384
DAY_SECONDS = 86_400

FULL = 0.7
"""How much of a core is planned with: behind that, those wait long who come in a burst."""

SHARDS = (1, 4, 16, 64, 256)
NODES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Costs:
    """Measured figures: bytes of Redis a turn, and its CPU and a process's CPU for a stored turn, in seconds."""

    turn_bytes: float
    redis_seconds: float
    process_seconds: float


@dataclass(frozen=True)
class Demand:
    """The wanted load: conversations that are kept, turns in each, and days in which they come. `peak` is how many
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


class Bottleneck(Enum):
    """What is full first."""

    REDIS = "a node's core"
    MEMORY = "a node's memory"
    PROCESSES = "processes"


@dataclass(frozen=True)
class Deployment:
    """So many shards on so many nodes, and so many processes before them."""

    shards: int
    nodes: int
    processes: int

    @property
    def share(self) -> float:
        """How much of all the busiest node has, where the cluster shares out the slots by itself."""
        return busiest_node(self.shards, self.nodes) / self.shards

    @property
    def even(self) -> float:
        """The same, where somebody has placed the shards as evenly as they go."""
        return -(-self.shards // min(self.nodes, self.shards)) / self.shards


@dataclass(frozen=True)
class Capacity:
    """What a deployment can do: turns a second of its busiest node and processes, and conversations in memory."""

    redis: float
    processes: float
    conversations: float

    def bottleneck(self, demand: Demand) -> tuple[Bottleneck, float]:
        """What a demand fills first, and how full: above 1 it is too much."""
        loads = {
            Bottleneck.REDIS: demand.turns_a_second / self.redis,
            Bottleneck.PROCESSES: demand.turns_a_second / self.processes,
            Bottleneck.MEMORY: demand.conversations / self.conversations,
        }
        first = max(loads, key=lambda each: loads[each])
        return first, loads[first]


def capacity(
    costs: Costs, deployment: Deployment, demand: Demand, machine: Machine, *, by_hand: bool = True
) -> Capacity:
    """What a deployment has room for. Traffic is as uneven as the conversations in the shards; these are placed
    `by_hand`, or as the cluster does it.
    """
    share = deployment.even if by_hand else deployment.share
    uneven = fullest_shard(demand.conversations, deployment.shards, random.Random(0)) if deployment.shards > 1 else 1.0
    busiest = share * uneven
    return Capacity(
        redis=FULL / (costs.redis_seconds * busiest),
        processes=FULL * deployment.processes / costs.process_seconds,
        conversations=machine.room / (costs.turn_bytes * demand.turns * busiest),
    )


def smallest(costs: Costs, demand: Demand, machine: Machine) -> tuple[Deployment, Bottleneck, float]:
    """The fewest nodes, and with these the fewest shards and processes, that carry a demand, or the most of all where
    none does; what of it is full first, and how full.
    """
    processes = max(1, math.ceil(costs.process_seconds * demand.turns_a_second / FULL))
    deployments = [Deployment(shards, nodes, processes) for nodes in NODES for shards in SHARDS]
    loads = [
        (deployment, *capacity(costs, deployment, demand, machine).bottleneck(demand)) for deployment in deployments
    ]
    return next((each for each in loads if each[2] <= 1), loads[-1])


def grid(costs: Costs, demand: Demand, machine: Machine) -> Iterator[tuple[int, int, float, float]]:
    """For each number of shards and nodes: turns a second that Redis takes, placed by hand and by the cluster."""
    for shards in SHARDS:
        for nodes in NODES:
            deployment = Deployment(shards, nodes, 1)
            by_hand = capacity(costs, deployment, demand, machine).redis
            yield shards, nodes, by_hand, capacity(costs, deployment, demand, machine, by_hand=False).redis
