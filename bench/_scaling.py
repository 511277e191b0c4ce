"""How much a deployment can do, from what one turn costs a process and Redis: arithmetic. Pure: no server is asked.

A node of Redis runs commands on one core. Shards lie on the nodes by the slots of their keys, so the node with most of
them is full first; a process is full at one core. Whatever is full first is the bottleneck.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from bench._sizing import Costs, Demand, Machine, busiest_node, fullest_shard

FULL = 0.7
"""How much of a core is planned with: behind that, those wait long who come in a burst."""

SHARDS = (1, 4, 16, 64, 256)
NODES = (1, 2, 4, 8, 16)


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
