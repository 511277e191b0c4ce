"""The doctor: the faults of a Redis's configuration that could lose or expose conversations, and their remedies.

Pure: examine.py gathers the facts. A check makes at most one finding for a server. Where a fact is missing it says so;
it never reports OK without the fact.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from store.doctor.examine import Examined, ExaminedServer
from store.guard import CLOSED
from store.redis.address import AddressKind

OLDEST_REDIS = (7, 0)
"""The first with scripts that may run without memory."""

SLOW_PING_MS = 20.0
MOST_SKEW_SECONDS = 5.0
"""How far clocks may be apart: those that a time server sets are so by milliseconds."""

SHORTEST_BUSY_MS = 1000
"""Scripts take milliseconds; on a slow machine one must not count as stuck."""

GIB = 1 << 30

DISK_TIMES = 3
"""The most that the embedded server's disk takes: the last rewrite, the changes since, and both anew at a rewrite."""

UNSAID = "unknown: INFO is not permitted, or lacks this field"


class Level(StrEnum):
    """How bad a finding is: nothing to do, worth a check, or conversations may be lost or read by others."""

    OK = "ok"
    WARN = "warn"
    UNSAFE = "unsafe"


@dataclass(frozen=True, slots=True)
class Expected:
    """The server that the settings expect at the address, and how much the service keeps in each of its shards."""

    kind: AddressKind
    shards: int
    max_bytes: int
    log_bytes: int = 0
    """The most that event logs take in each shard."""
    embedded: bool = False
    local: bool = False
    """Whether only this machine can reach the server."""
    password: bool = False
    disk_bytes: int | None = None
    """How much is free on an embedded server's disk, where it is known."""
    replicas: int = 0
    """How many replicas have to have a response before its end is told (STORE_REPLICAS)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: on which node, what it is now, why it matters, and what to do, if anything."""

    what: str
    level: Level
    now: str
    why: str
    remedy: str = ""
    node: str = ""


Verdict = tuple[Level, str, str]
"""The level, what it is now, and the remedy if it is not OK."""


def judge(expected: Expected, examined: Examined) -> list[Finding]:
    """All findings, the worst first; nodes are named where there are several."""
    found = [unreachable(reason, name) for name, reason in examined.silent.items()]
    if examined.nodes:
        found += _overall(expected, examined)
    for node in examined.nodes:
        for what, why, check in CHECKS:
            verdict = check(expected, node)
            if verdict is not None:
                found.append(finding(what, why, verdict, node.name))
    return worst_first(found)


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """Findings in the order in which to read them."""
    return sorted(found, key=lambda each: list(Level).index(each.level), reverse=True)


REMEDIES = {
    "username-password|authentication required|wrongpass|noauth|without any password": (
        "correct the user and the password in HARMONIUM_REDIS_URL: redis://USER:PASSWORD@host"
    ),
    "db index": "end HARMONIUM_REDIS_URL with the number of a database that it has, as in /0",
    "protocol error": "something else than a Redis answers there: correct the port in HARMONIUM_REDIS_URL",
    "not known|name resolution|no address": "correct the host in HARMONIUM_REDIS_URL",
    "ssl|tls|certificate|did not answer|closed": (
        "see whether it is busy or stopped, and whether it has TLS: rediss:// is for a server with it, redis:// without"
    ),
    "": "start it, or correct HARMONIUM_REDIS_URL",
}
"""The remedies for a server that can't be asked, by words of the reason; the first that are found count."""


def unreachable(reason: str, node: str = "") -> Finding:
    """The finding about a server that did not answer, or refused to."""
    why = "its conversations can't be read or continued, and no new ones are stored there"
    remedy = next(remedy for words, remedy in REMEDIES.items() if re.search(words, reason, re.IGNORECASE))
    return Finding("reachable", Level.UNSAFE, reason, why, remedy, node)


def finding(what: str, why: str, verdict: Verdict, node: str = "") -> Finding:
    """A finding; one that is OK has no remedy."""
    level, now, remedy = verdict
    return Finding(what, level, now, why, "" if level is Level.OK else remedy, node)


def _overall(expected: Expected, examined: Examined) -> Iterator[Finding]:
    """Findings about all nodes together."""
    why = "with other settings, or another layout, a process can't find conversations, or deletes other processes' ones"
    if (mismatch := examined.mismatch) is not None:
        yield finding("layout", why, (Level.UNSAFE, mismatch.reason, mismatch.remedy))
    elif (record := examined.record) is not None:  # a store without one gets it at the next start
        shards = "1 shard" if record.shards == 1 else f"{record.shards} shards"
        yield finding("layout", why, (Level.OK, f"{record.layout}, {shards}, written by {record.release}", ""))
    primaries = len(examined.nodes) + len(examined.silent)
    if expected.kind is AddressKind.CLUSTER:
        enough = expected.shards >= max(2, primaries)
        now = f"{expected.shards} on {primaries} primaries"
        why = "a shard is on one node, so with fewer shards than nodes some nodes stay empty"
        remedy = f"set HARMONIUM_SHARDS to {max(16, 4 * primaries)} or so; it may grow at any time"
        yield finding("shards", why, (Level.OK if enough else Level.WARN, now, remedy))
    if not expected.local:
        now = "required" if expected.password else "not required"
        why = "whoever can connect to the server can read every conversation of every tenant"
        remedy = "give it a user with a password, and put both into HARMONIUM_REDIS_URL"
        yield finding("password", why, (Level.OK if expected.password else Level.UNSAFE, now, remedy))


def _reachable(expected: Expected, node: ExaminedServer) -> Verdict:
    level = Level.WARN if node.ping_ms > SLOW_PING_MS else Level.OK
    return level, f"PING takes {node.ping_ms:.1f} ms", "bring service and Redis closer together"


def _clock(expected: Expected, node: ExaminedServer) -> Verdict:
    ahead = node.ahead_seconds
    if ahead is None:
        return Level.WARN, UNSAID, "check that the clocks of this machine and of Redis are set by a time server"
    if abs(ahead) <= MOST_SKEW_SECONDS:
        return Level.OK, f"as this machine's, within {MOST_SKEW_SECONDS:g} s", ""
    now = f"{abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
    return Level.WARN, now, "have a time server set both clocks"


def _version(expected: Expected, node: ExaminedServer) -> Verdict:
    if "valkey_version" in node.info:
        return Level.OK, f"Valkey {node.info['valkey_version']}", ""
    version = str(node.info.get("redis_version", ""))
    parts = version.split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        return Level.WARN, UNSAID, "check that it is Redis 7.0 or newer, or Valkey"
    old = (int(parts[0]), int(parts[1])) < OLDEST_REDIS
    return Level.UNSAFE if old else Level.OK, f"Redis {version}", "upgrade to Redis 7.0 or newer, or to Valkey"


def _role(expected: Expected, node: ExaminedServer) -> Verdict:
    role = node.info.get("role")
    if role is None:
        return Level.WARN, UNSAID, "check that it is a primary"
    level = Level.OK if role == "master" else Level.UNSAFE
    return level, role, "name the primary, or its Sentinels: redis+sentinel://…/SERVICE"


def _mode(expected: Expected, node: ExaminedServer) -> Verdict | None:
    clustered = str(node.info.get("cluster_enabled", 0)) == "1"
    if not clustered or expected.kind is AddressKind.CLUSTER:
        return None
    return Level.UNSAFE, "a node of a cluster", "write redis+cluster:// in HARMONIUM_REDIS_URL, for all of its nodes"


def _state(expected: Expected, node: ExaminedServer) -> Verdict | None:
    if expected.kind is not AddressKind.CLUSTER:
        return None
    state = node.cluster.get("cluster_state")
    if state is None:
        return Level.WARN, UNSAID, "grant +cluster|info"
    return Level.OK if state == "ok" else Level.UNSAFE, state, "see `redis-cli --cluster check`: slots have no node"


def _policy(expected: Expected, node: ExaminedServer) -> Verdict:
    policy = node.info.get("maxmemory_policy")
    if policy is None:
        return Level.WARN, UNSAID, "check that maxmemory-policy is noeviction"
    if policy == "noeviction":
        return Level.OK, policy, ""
    level = Level.UNSAFE if _number(node, "maxmemory") > 0 else Level.WARN
    return level, str(policy), "CONFIG SET maxmemory-policy noeviction, and in its file"


def _memory(expected: Expected, node: ExaminedServer) -> Verdict:
    if "maxmemory" not in node.info:
        bounds = "HARMONIUM_MAX_BYTES and HARMONIUM_MAX_EVENT_LOG_BYTES"
        return Level.WARN, UNSAID, f"check that maxmemory leaves room for {bounds} in each shard"
    limit, machine = _number(node, "maxmemory"), _number(node, "total_system_memory")
    if expected.embedded and limit == CLOSED:
        return Level.UNSAFE, "no turn is stored: its disk is nearly full", "make room on the disk of HARMONIUM_DATA_DIR"
    needed = (expected.max_bytes + expected.log_bytes) * node.shards
    if expected.max_bytes == 0:
        return Level.WARN, f"{_size(limit)}, and HARMONIUM_MAX_BYTES is no limit", "set HARMONIUM_MAX_BYTES"
    wanted = f"HARMONIUM_MAX_BYTES and HARMONIUM_MAX_EVENT_LOG_BYTES of all shards here add up to {_size(needed)}"
    if limit == 0:
        enough = expected.embedded and machine > needed
        remedy = f"lower HARMONIUM_MAX_BYTES below {_size(machine)}" if expected.embedded else "CONFIG SET maxmemory"
        now = f"no limit on a machine with {_size(machine)}; {wanted}"
        return Level.OK if enough else Level.WARN, now, remedy
    now = f"at most {_size(limit)}; {wanted}"
    remedy = "raise maxmemory, or lower HARMONIUM_MAX_BYTES; until then conversations are evicted early"
    return Level.WARN if limit < needed else Level.OK, now, remedy


def _persistence(expected: Expected, node: ExaminedServer) -> Verdict:
    if "aof_enabled" not in node.info:
        return Level.WARN, UNSAID, "check that it writes an append-only file"
    if str(node.info["aof_enabled"]) == "1":
        return Level.OK, "append-only file", ""
    save = node.config.get("save") if node.config is not None else None
    now = {None: "no append-only file", "": "nothing is written"}.get(save, f"snapshots alone, save {save}")
    return Level.UNSAFE, now, "CONFIG SET appendonly yes, and in its file"


def _sync(expected: Expected, node: ExaminedServer) -> Verdict | None:
    if str(node.info.get("aof_enabled")) != "1":
        return None
    if node.config is None:
        remedy = "grant +config|get, or check that appendfsync is everysec or always"
        return Level.WARN, "CONFIG is not permitted", remedy
    policy = node.config.get("appendfsync", "")
    return Level.WARN if policy == "no" else Level.OK, policy, "CONFIG SET appendfsync everysec, and in its file"


def _writes(expected: Expected, node: ExaminedServer) -> Verdict:
    names = ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")
    if names[0] not in node.info:
        return Level.WARN, UNSAID, "check that it can write to its disk"
    failed = [f"{name} is {node.info[name]}" for name in names if str(node.info.get(name, "ok")) != "ok"]
    remedy = "see its log and its disk; a server that can't write refuses changes, or loses them at a restart"
    if failed:
        return Level.UNSAFE, ", ".join(failed), remedy
    if node.info.get("errorstat_MISCONF") and not expected.embedded:  # whose guard has rewritten its files
        remedy = "run BGREWRITEAOF before a restart: a write that was cut short can prevent the start"
        return Level.WARN, "the last ones succeeded, and some failed since it was started", remedy
    return Level.OK, "the last ones succeeded", ""


def _disk(expected: Expected, node: ExaminedServer) -> Verdict | None:
    if expected.disk_bytes is None or expected.max_bytes == 0:
        return None
    room = expected.disk_bytes + _number(node, "aof_current_size")
    needed = DISK_TIMES * expected.max_bytes * expected.shards
    now = f"{_size(room)} for its files; {DISK_TIMES} times HARMONIUM_MAX_BYTES of all shards is {_size(needed)}"
    return Level.OK if room >= needed else Level.WARN, now, "make room on the disk, or lower HARMONIUM_MAX_BYTES"


def _replicas(expected: Expected, node: ExaminedServer) -> Verdict | None:
    if expected.kind is AddressKind.SINGLE and not expected.replicas:
        return None
    if "connected_slaves" not in node.info:
        return Level.WARN, UNSAID, f"check that it has {max(1, expected.replicas)} or more"
    count = _number(node, "connected_slaves")
    if count < expected.replicas:
        now = f"{count} connected, and HARMONIUM_STORE_REPLICAS is {expected.replicas}: no response is stored as safely"
        return Level.UNSAFE, now, "add replicas, or lower HARMONIUM_STORE_REPLICAS"
    return Level.OK if count else Level.WARN, f"{count} connected", "add a replica on another machine"


def _scripts(expected: Expected, node: ExaminedServer) -> Verdict | None:
    if node.config is None or "busy-reply-threshold" not in node.config:
        return None
    limit = int(node.config["busy-reply-threshold"])
    short = 0 < limit < SHORTEST_BUSY_MS
    return Level.WARN if short else Level.OK, f"busy after {limit} ms", "CONFIG SET busy-reply-threshold 5000"


CHECKS: tuple[tuple[str, str, Callable[[Expected, ExaminedServer], Verdict | None]], ...] = (
    ("reachable", "a request waits for Redis about three times", _reachable),
    ("clock", "ages and leases go by its clock; keys that expire, and signatures of webhooks, by this one's", _clock),
    ("version", "an older one refuses the store's scripts", _version),
    ("role", "a replica refuses writes, so nothing would be stored", _role),
    ("mode", "one node of a cluster refuses the keys of the others", _mode),
    ("cluster state", "an incomplete cluster refuses keys that have no node", _state),
    ("eviction policy", "with any policy but noeviction a full Redis deletes parts of conversations", _policy),
    ("memory", "without room for all that may be stored, new turns are refused", _memory),
    ("persistence", "a restart loses what is only in memory", _persistence),
    ("sync to disk", "a machine that stops loses what was not written to disk", _sync),
    ("writes to disk", "a restart loses what could not be written", _writes),
    ("room on the disk", "below a reserve no turn is stored, and without room its files can't be rewritten", _disk),
    ("replicas", "without a replica nothing takes over when the primary fails", _replicas),
    ("scripts", "while a script runs for longer than that, all other requests are refused", _scripts),
)
"""The checks of each node: name, reason, and function, which returns None where the check doesn't apply."""


def _number(node: ExaminedServer, name: str) -> int:
    return int(node.info.get(name, 0))


def _size(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count else "no limit"
