"""What is wrong with the keys under a prefix, worked out from the keys alone.

It is the oracle of the store's tests: it knows the layout of store/keys.py but none of the store's code, and never
changes anything.
"""

import re
from collections import Counter
from typing import Any

import msgspec
from redis.asyncio import Redis

Dump = dict[str, Any]
"""Every key under a prefix with its value: bytes, a dict, a set, or a dict of scores."""

SINGLES = {"clock", "usage", "leaves", "trees"}
_FAMILY = re.compile(r"t:(?P<tenant>[^:]+):(?P<family>node|messages|response|pins|tree):(?P<digits>[0-9a-f]{48})")


async def dump(redis: Redis, prefix: str) -> Dump:
    """All keys under `prefix` and what they hold."""
    return {key.decode(): await _value(redis, key) for key in await redis.keys(f"{prefix}:*")}


async def scores(redis: Redis, prefix: str, name: str) -> dict[str, float]:
    """The `leaves` or `trees` of the only shard by id, least recently used first, with their scores."""
    found = await redis.zrange(f"{prefix}:{{00}}:{name}", 0, -1, withscores=True)
    return {f"resp_{member.decode().split('/')[1]}": score for member, score in found}


async def _value(redis: Redis, key: bytes) -> Any:
    match await redis.type(key):
        case b"string":
            return await redis.get(key)
        case b"hash":
            return await redis.hgetall(key)
        case b"set":
            return set(await redis.smembers(key))
        case _:
            return dict(await redis.zrange(key, 0, -1, withscores=True))


async def complaints(redis: Redis, prefix: str) -> list[str]:
    """Everything under `prefix` that belongs to no stored turn, is missing, or doesn't add up."""
    found = await dump(redis, prefix)
    shards = sorted({key.split("}")[0] + "}" for key in found})
    wrong: list[str] = []
    for shard in shards:
        own = {key.removeprefix(f"{shard}:"): value for key, value in found.items() if key.startswith(shard)}
        wrong += [f"{shard} {complaint}" for complaint in _shard_complaints(own)]
    for key in found:
        if ":pins:" in key and await redis.pttl(key) < 0:
            wrong.append(f"{key} never expires")
    return wrong


def _shard_complaints(own: Dump) -> list[str]:
    turns: dict[tuple[str, str], dict[str, Any]] = {}
    for key, value in own.items():
        if match := _FAMILY.fullmatch(key):
            turns.setdefault((match["tenant"], match["digits"]), {})[match["family"]] = value
    nodes = {
        turn: {name.decode(): value.decode() for name, value in families["node"].items()}
        for turn, families in turns.items()
        if "node" in families
    }
    wrong = [f"unknown key {key}" for key in own if not _FAMILY.fullmatch(key) and key not in SINGLES]
    wrong += [f"{turn} has {sorted(turns[turn])} but no node" for turn in turns if turn not in nodes]
    for turn, node in nodes.items():
        wrong += [f"{turn}: {complaint}" for complaint in _turn_complaints(turn, node, turns, nodes)]
    for name, expected in (("leaves", _leaves(nodes)), ("trees", _roots(nodes))):
        stored = {member.decode() for member in own.get(name, {})}
        if stored != expected:
            wrong.append(f"{name} are {stored}, not {expected}")
    counters = {name.decode(): int(value) for name, value in own.get("usage", {}).items()}
    if {name: value for name, value in counters.items() if value} != _usage(turns, nodes):
        wrong.append(f"usage is {counters}, not {_usage(turns, nodes)}")
    return wrong


def _turn_complaints(turn: tuple[str, str], node: dict[str, str], turns: Dump, nodes: Dump) -> list[str]:
    tenant, digits = turn
    families = turns[turn]
    children = [child for child, other in nodes.items() if child[0] == tenant and other["parent"] == digits]
    wrong: list[str] = []
    above = nodes.get((tenant, node["parent"]), {"chain_bytes": 0, "chain_messages": 0})
    blob = families.get("messages")
    if int(node["chain_bytes"]) != int(above["chain_bytes"]) + int(node["messages_bytes"]):
        wrong.append(f"chain_bytes is {node['chain_bytes']}, after {above['chain_bytes']} above it")
    if blob and int(node["chain_messages"]) != int(above["chain_messages"]) + len(msgspec.msgpack.decode(blob[1:])):
        wrong.append(f"chain_messages is {node['chain_messages']}, after {above['chain_messages']} above it")
    if int(node["children"]) != len(children):
        wrong.append(f"counts {node['children']} children and has {len(children)}")
    if len(blob or b"") != int(node["messages_bytes"]):
        wrong.append("its messages don't have the length noted")
    if len(families.get("response", b"")) != int(node["response_bytes"]):
        wrong.append("its response doesn't have the length noted")
    if node["parent"] and (tenant, node["parent"]) not in nodes:
        wrong.append(f"its parent {node['parent']} is gone")
    if "deleted" in node and not children and "pins" not in families:
        wrong.append("is deleted, and nothing needs it")
    leaves = {leaf.decode() for leaf in turns.get((tenant, node["root"]), {}).get("tree", set())}
    if (digits in leaves) != (not children):
        wrong.append(f"has {len(children)} children and the leaves of its tree are {leaves}")
    return wrong


def _leaves(nodes: Dump) -> set[str]:
    parents = {(tenant, node["parent"]) for (tenant, _), node in nodes.items()}
    return {"/".join(turn) for turn in nodes if turn not in parents}


def _roots(nodes: Dump) -> set[str]:
    return {"/".join(turn) for turn, node in nodes.items() if not node["parent"]}


def _usage(turns: Dump, nodes: Dump) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for (tenant, digits), node in nodes.items():
        payload = sum(len(turns[tenant, digits].get(family, b"")) for family in ("messages", "response"))
        kind = "tombstones" if "deleted" in node else "responses"
        for field, change in ((kind, 1), ("trees", 0 if node["parent"] else 1), ("bytes", payload)):
            counted[field] += change
            counted[f"{field}/{tenant}"] += change
    return {field: value for field, value in counted.items() if value}
