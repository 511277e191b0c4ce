"""The doctor: facts in, findings out. What about a Redis could cost conversations, and what to do.

Pure: examination.py asks. A finding is made by one check, and a check makes at most one for a server. Where a fact
is missing a check says so, and never that all is well.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from store.doctor.examine import Examined, Node
from store.redis.address import Kind

OLDEST_REDIS = (7, 0)
"""The first that knows scripts which may run without memory."""

SLOW_PING_MS = 20.0
SHORTEST_BUSY_MS = 1000
"""Scripts take milliseconds; one that meets a slow machine must not count as stuck."""

GIB = 1 << 30

UNSAID = "it doesn't say: INFO is not permitted, or without this field"


class Level(StrEnum):
    """How a finding is meant: nothing to do, to be looked at, or conversations may be lost or served to others."""

    OK = "ok"
    WARN = "warn"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Plan:
    """What the service is set to: what it expects at the address, and how much it keeps in each of its shards."""

    kind: Kind
    shards: int
    max_bytes: int
    embedded: bool = False
    local: bool = False
    """Whether only this machine can reach the server."""
    password: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: on which node, what it is now, why that matters, and what to do if it does."""

    what: str
    level: Level
    now: str
    why: str
    remedy: str = ""
    node: str = ""


Verdict = tuple[Level, str, str]
"""How it is meant, what it is now, and the remedy if it is not well."""


def judge(plan: Plan, examined: Examined) -> list[Finding]:
    """All findings, the worst first; nodes are named where there are several."""
    found = [unreachable(reason, name) for name, reason in examined.silent.items()]
    if examined.nodes:
        found += _whole(plan, examined)
    for node in examined.nodes:
        for what, why, check in CHECKS:
            verdict = check(plan, node)
            if verdict is not None:
                found.append(_finding(what, why, verdict, node.name))
    return sorted(found, key=lambda each: list(Level).index(each.level), reverse=True)


def unreachable(reason: str, node: str = "") -> Finding:
    """What there is to say about a server that could not be asked."""
    why = "the conversations that it holds can't be read or continued, and none can be kept there"
    return Finding("reachable", Level.UNSAFE, reason, why, "start it, or correct HARMONIUM_REDIS_URL", node)


def _finding(what: str, why: str, verdict: Verdict, node: str = "") -> Finding:
    """A finding; one with which all is well has nothing to be done."""
    level, now, remedy = verdict
    return Finding(what, level, now, why, "" if level is Level.OK else remedy, node)


def _whole(plan: Plan, examined: Examined) -> Iterator[Finding]:
    """What is a matter of all nodes together."""
    primaries = len(examined.nodes) + len(examined.silent)
    if plan.kind is Kind.CLUSTER:
        enough = plan.shards >= max(2, primaries)
        now = f"{plan.shards} on {primaries} primaries"
        why = "a shard is on one node, so with fewer shards than nodes some nodes stay empty, whatever they cost"
        remedy = f"set HARMONIUM_SHARDS to {max(16, 4 * primaries)} or so; it may grow at any time"
        yield _finding("shards", why, (Level.OK if enough else Level.WARN, now, remedy))
    if not plan.local:
        now = "asked for" if plan.password else "none is needed"
        why = "whoever reaches the server can read every conversation, past every key and tenant"
        remedy = "give it a user with a password, and put both into HARMONIUM_REDIS_URL"
        yield _finding("password", why, (Level.OK if plan.password else Level.UNSAFE, now, remedy))


def _reachable(plan: Plan, node: Node) -> Verdict:
    level = Level.WARN if node.ping_ms > SLOW_PING_MS else Level.OK
    return level, f"PING takes {node.ping_ms:.1f} ms", "bring service and Redis closer together"


def _version(plan: Plan, node: Node) -> Verdict:
    if "valkey_version" in node.info:
        return Level.OK, f"Valkey {node.info['valkey_version']}", ""
    version = str(node.info.get("redis_version", ""))
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        return Level.WARN, UNSAID, "see that it is Redis 7.0 or newer, or Valkey"
    old = (int(parts[0]), int(parts[1])) < OLDEST_REDIS
    return Level.UNSAFE if old else Level.OK, f"Redis {version}", "upgrade to Redis 7.0 or newer, or to Valkey"


def _role(plan: Plan, node: Node) -> Verdict:
    role = node.info.get("role")
    if role is None:
        return Level.WARN, UNSAID, "see that it is a primary"
    return (
        Level.OK if role == "master" else Level.UNSAFE,
        role,
        "name the primary, or its Sentinels: redis+sentinel://…/SERVICE",
    )


def _mode(plan: Plan, node: Node) -> Verdict | None:
    clustered = str(node.info.get("cluster_enabled", 0)) == "1"
    if not clustered or plan.kind is Kind.CLUSTER:
        return None
    return Level.UNSAFE, "a node of a cluster", "write redis+cluster:// in HARMONIUM_REDIS_URL, for all of its nodes"


def _state(plan: Plan, node: Node) -> Verdict | None:
    if plan.kind is not Kind.CLUSTER:
        return None
    state = node.cluster.get("cluster_state")
    if state is None:
        return Level.WARN, UNSAID, "grant +cluster|info to see"
    return Level.OK if state == "ok" else Level.UNSAFE, state, "see `redis-cli --cluster check`: slots have no node"


def _policy(plan: Plan, node: Node) -> Verdict:
    policy = node.info.get("maxmemory_policy")
    if policy is None:
        return Level.WARN, UNSAID, "see that maxmemory-policy is noeviction"
    if policy == "noeviction":
        return Level.OK, policy, ""
    bounded = _number(node, "maxmemory") > 0
    return (
        Level.UNSAFE if bounded else Level.WARN,
        str(policy),
        "CONFIG SET maxmemory-policy noeviction, and in its file",
    )


def _memory(plan: Plan, node: Node) -> Verdict:
    if "maxmemory" not in node.info:
        return Level.WARN, UNSAID, "see that maxmemory leaves room for HARMONIUM_MAX_BYTES in each shard"
    limit, machine = _number(node, "maxmemory"), _number(node, "total_system_memory")
    needed = plan.max_bytes * node.shards
    if plan.max_bytes == 0:
        return Level.WARN, f"{_size(limit)}, and the store has no limit", "set HARMONIUM_MAX_BYTES"
    wanted = f"HARMONIUM_MAX_BYTES of all shards here adds up to {_size(needed)}"
    if limit == 0:
        enough = plan.embedded and machine > needed
        remedy = f"lower HARMONIUM_MAX_BYTES below {_size(machine)}" if plan.embedded else "CONFIG SET maxmemory"
        now = f"no limit on a machine with {_size(machine)}; {wanted}"
        return Level.OK if enough else Level.WARN, now, remedy
    now = f"at most {_size(limit)}; {wanted}"
    return Level.WARN if limit < needed else Level.OK, now, "raise maxmemory, or lower HARMONIUM_MAX_BYTES"


def _persistence(plan: Plan, node: Node) -> Verdict:
    if "aof_enabled" not in node.info:
        return Level.WARN, UNSAID, "see that it writes an append-only file"
    if str(node.info["aof_enabled"]) == "1":
        return Level.OK, "append-only file", ""
    save = node.config.get("save") if node.config is not None else None
    now = {None: "no append-only file", "": "nothing is written"}.get(save, f"snapshots alone, save {save}")
    return Level.UNSAFE, now, "CONFIG SET appendonly yes, and in its file"


def _sync(plan: Plan, node: Node) -> Verdict | None:
    if str(node.info.get("aof_enabled")) != "1":
        return None
    if node.config is None:
        return Level.WARN, "CONFIG is not permitted", "see that appendfsync is everysec or always, or grant +config|get"
    policy = node.config.get("appendfsync", "")
    return Level.WARN if policy == "no" else Level.OK, policy, "CONFIG SET appendfsync everysec, and in its file"


def _writes(plan: Plan, node: Node) -> Verdict:
    names = ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")
    if names[0] not in node.info:
        return Level.WARN, UNSAID, "see that it can write to its disk"
    failed = [f"{name} is {node.info[name]}" for name in names if str(node.info.get(name, "ok")) != "ok"]
    remedy = "see its log and its disk; a server that can't write refuses changes, or loses them at a restart"
    return Level.UNSAFE if failed else Level.OK, ", ".join(failed) or "the last ones succeeded", remedy


def _replicas(plan: Plan, node: Node) -> Verdict | None:
    if plan.kind is Kind.SINGLE:
        return None
    if "connected_slaves" not in node.info:
        return Level.WARN, UNSAID, "see that it has a replica"
    count = _number(node, "connected_slaves")
    return Level.OK if count else Level.WARN, f"{count} connected", "add a replica on another machine"


def _scripts(plan: Plan, node: Node) -> Verdict | None:
    if node.config is None or "busy-reply-threshold" not in node.config:
        return None
    limit = int(node.config["busy-reply-threshold"])
    short = 0 < limit < SHORTEST_BUSY_MS
    return Level.WARN if short else Level.OK, f"busy after {limit} ms", "CONFIG SET busy-reply-threshold 5000"


CHECKS: tuple[tuple[str, str, Callable[[Plan, Node], Verdict | None]], ...] = (
    ("reachable", "a request waits for Redis about three times", _reachable),
    ("version", "an older one doesn't know how the store's scripts begin, and refuses them", _version),
    ("role", "a replica can't be written, so nothing would be kept", _role),
    ("mode", "one node of a cluster sends most requests away", _mode),
    ("cluster state", "a cluster that isn't whole refuses what it has no node for", _state),
    ("eviction policy", "any other policy than noeviction tears conversations apart when memory is full", _policy),
    ("memory", "what the store may keep has to have room, or new turns are refused", _memory),
    ("persistence", "what is in memory alone is lost by a restart", _persistence),
    ("sync to disk", "what was not brought to disk is lost when the machine stops", _sync),
    ("writes to disk", "what can't be written is lost by a restart", _writes),
    ("replicas", "nobody can take over for a primary without one", _replicas),
    ("scripts", "a script that takes longer has every other request refused meanwhile", _scripts),
)
"""What is looked at on each node, why, and by which check, which has no verdict where that is not the question."""


def _number(node: Node, name: str) -> int:
    return int(node.info.get(name, 0))


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count else "no limit"
