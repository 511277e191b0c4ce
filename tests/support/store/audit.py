"""What is wrong with the keys under a prefix, worked out from the keys alone.

It is the oracle of the store's tests: it knows the layout of store/keys.py but none of the store's code, and never
changes anything. A response in the background is under way while its digest is that of its submission: its end gives it
another.
"""

import re
from collections import Counter, defaultdict
from typing import Any

import msgspec
from redis.asyncio import Redis

Dump = dict[str, Any]
"""Every key under a prefix with its value: bytes, a dict, a set, a dict of scores, or a list of entries."""

SINGLES = {
    "clock",
    "usage",
    "tombstones",
    "trees",
    "secret",
    "store",
    "sweeps",
    "registry",
    "registry-used",
    "audit-entries",
    "audit-shares",
    "reservations",
    "archive-head",
    "archive-user",
    "archive-failed",
    "archive-id",
    "older",
    "batching",
    "unarchived",
    "files-held",
    "files-recovered",
    "files-until",
}
COUNTERS = ("responses", "tombstones", "trees", "bytes")
LEAF_BYTES, LISTED_BYTES, TREE_BYTES = 195, 135, 445
"""As lua/usage.lua has them."""
CONVERSATION_MARK = "636f6e766572"
NODE_BYTES, PATH_BYTES, VALUE_BYTES, NAME_BYTES, ROUNDED_PART, JOB_BYTES, SAID_BYTES = 405, 2300, 66, 60, 22, 700, 200
"""As lua/held.lua has them."""
WORDS_BYTES, SAID_NAME = 116, 8
"""As lua/said.lua has them."""
SHOWN_BYTES, PICTURE_BYTES = 400, 360
"""As lua/pictures.lua has them."""
PATH_TURNS = 32
_FAMILIES = "node|messages|response|pins|runs|tree|job|spec|log|snapshot|remains"
_FAMILY = re.compile(rf"t:(?P<tenant>[^:]+):(?P<family>{_FAMILIES}):(?P<digits>[0-9a-f]{{48}})")
_PICTURE = re.compile(r"t:(?P<tenant>[^:]+):picture:(?P<digest>[0-9a-f]{64})")


Turn = tuple[str, str]
"""A tenant and digits."""

Nodes = dict[Turn, dict[str, str]]
Families = dict[Turn, dict[str, Any]]

ENTRY_BYTES = 32
RUNNING = {"queued", "in_progress"}
SHARED = {"leases", "looked", "logs", "logged", "waiting-bytes", "outbox", "outbox-ages", "outbox-tries"}
NOTES = re.compile(
    r"(?:claim|outbox-take|spent-by):[0-9a-f]+|spent:[0-9]+|(?:limits|parallel):[^/]+/.+|"
    r"(?:approvals|approved|containers|groups|keyed|keyed-until|reserved):[A-Za-z0-9_.-]+|fence:[^/]+/.+|"
    r"archive-away|archiver|short"
)
"""The traces of calls for their repeats; and what is noted of approvals, containers, keyed requests, limits
and usage; these expire.
"""
_LASTING = ("registry:", "audit-of:", "changes:", "files:", "file-room:", "pieces:", "batches:", "batching:")
_PLACES = re.compile(r"(?:queued|turn):[0-5]|accepted:[45]|line:[0-5]:[A-Za-z0-9_.-]+")


async def dump(redis: Redis, prefix: str) -> Dump:
    """All keys under `prefix` and what they hold."""
    keys = [key async for key in redis.scan_iter(f"{prefix}:*", count=1000)]
    types = await replies(redis, [("TYPE", key) for key in keys])
    values = await replies(redis, [_reading(key, kind) for key, kind in zip(keys, types, strict=True)])
    return {key.decode(): _value(kind, value) for key, kind, value in zip(keys, types, values, strict=True)}


async def replies(redis: Redis, commands: list[tuple[Any, ...]]) -> list[Any]:
    """The replies to many commands, in one go."""
    pipeline = redis.pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    return await pipeline.execute()


async def scores(redis: Redis, prefix: str, name: str) -> dict[str, float]:
    """The `trees` of the only shard by id, or the `leaves:TENANT` of a tenant, least recently used first, with their
    scores."""
    found: Any = await redis.zrange(f"{prefix}:{{00}}:{name}", 0, -1, withscores=True)
    return {f"resp_{member.decode().rpartition('/')[2]}": score for member, score in found}


def _reading(key: bytes, kind: bytes) -> tuple[Any, ...]:
    match kind:
        case b"string":
            return ("GET", key)
        case b"hash":
            return ("HGETALL", key)
        case b"set":
            return ("SMEMBERS", key)
        case b"stream":
            return ("XRANGE", key, "-", "+")
        case _:
            return ("ZRANGE", key, 0, -1, "WITHSCORES")


def _value(kind: bytes, value: Any) -> Any:
    match kind:
        case b"set":
            return set(value)
        case b"zset":
            return dict(zip(value[::2], map(float, value[1::2]), strict=True))
        case b"stream":
            return [(id, fields[b"b"]) for id, fields in value]
        case _:
            return value


async def complaints(redis: Redis, prefix: str) -> list[str]:
    """Everything under `prefix` that belongs to no stored turn, is missing, or doesn't add up."""
    found = await dump(redis, prefix)
    shards = sorted({key.split("}")[0] + "}" for key in found})
    wrong: list[str] = []
    for shard in shards:
        own = {key.removeprefix(f"{shard}:"): value for key, value in found.items() if key.startswith(shard)}
        wrong += [f"{shard} {complaint}" for complaint in _shard_complaints(own, len(shard))]
    fleeting = [key for key in found if ":pins:" in key or ":runs:" in key or NOTES.search(key)]
    times = await replies(redis, [("PTTL", key) for key in fleeting])
    return wrong + [f"{key} never expires" for key, time in zip(fleeting, times, strict=True) if time == -1]


def _held(shard_name: int, tenant: str, node: dict[str, str], families: dict[str, Any]) -> int:
    """The bytes that a node has to note; the name of its shard has `shard_name` characters."""
    name, depth = shard_name + len(":t:") + len(tenant) + NAME_BYTES, int(node["depth"])
    held = name + NODE_BYTES + PATH_BYTES * (depth > PATH_TURNS and depth % PATH_TURNS == 1)
    for family in ("messages", "response", "remains"):
        if length := len(families.get(family, b"")):
            held += name + VALUE_BYTES + length + length // ROUNDED_PART
    held += WORDS_BYTES * ("said" in node)
    if under_way(node):
        job = families["job"]
        said = len(job.get(b"steers", b"").split()) * SAID_BYTES + int(job.get(b"steer_bytes", 0))
        held += JOB_BYTES + len(families["spec"]) + said
    return held


def _shard_complaints(own: Dump, shard_name: int) -> list[str]:
    turns: dict[tuple[str, str], dict[str, Any]] = {}
    for key, value in own.items():
        if match := _FAMILY.fullmatch(key):
            turns.setdefault((match["tenant"], match["digits"]), {})[match["family"]] = value
    nodes = {
        turn: {name.decode(): value.decode("latin-1") for name, value in families["node"].items()}
        for turn, families in turns.items()
        if "node" in families
    }
    orders = [key for name in ("leaves", "conversations", "trees", "said") for key in _orders(own, name)]
    known = SINGLES.union(filter(is_known, own), orders, (f"usage:{counter}" for counter in COUNTERS))
    known.update(filter(_PICTURE.fullmatch, own))
    wrong = [f"unknown key {key}" for key in own if not _FAMILY.fullmatch(key) and key not in known]
    wrong += [f"{turn} has {sorted(turns[turn])} but no node" for turn in turns if turn not in nodes]
    for turn, node in nodes.items():
        wrong += [f"{turn}: {complaint}" for complaint in _turn_complaints(turn, node, turns, nodes)]
        if (held := _held(shard_name, turn[0], node, turns[turn])) != int(node["held"]):
            wrong.append(f"{turn}: {held} bytes are held for it, and it says {node['held']}")
    tombstones = {leaf for leaf in _leaves(nodes) if "deleted" in nodes[leaf]}
    for name, expected in (("tombstones", _members(tombstones)), ("trees", _roots(nodes))):
        stored = {member.decode() for member in own.get(name, {})}
        if stored != expected:
            wrong.append(f"{name} are {stored}, not {expected}")
    named = {(tenant, name): entry for key, tenant in _orders(own, "said").items() for name, entry in own[key].items()}
    spoken = defaultdict[tuple[str, bytes], list[bytes]](list)
    for (tenant, digits), node in nodes.items():
        if "said" in node:
            spoken[tenant, node["said"].encode("latin-1")[:SAID_NAME]].append(digits.encode())
    if named.keys() != spoken.keys() or any(
        named[words] != b"#%d" % len(turns) and [named[words]] != turns for words, turns in spoken.items()
    ):
        wrong.append(f"the index of what was said has {named}, not {spoken}")
    waiting = {f"changes:{member.decode()}" for member in own.get("unarchived", {})}
    if unqueued := {key for key in own if key.startswith("changes:")} - waiting:
        wrong.append(f"{unqueued} would never be archived")
    leaves, listed = _ordered(own, "leaves"), _ordered(own, "conversations")
    if leaves != {leaf: float(nodes[leaf]["touched"]) for leaf in _leaves(nodes) - tombstones}:
        wrong.append(f"leaves are {leaves}, not {_leaves(nodes) - tombstones} in the order of their use")
    if listed != {turn: float(nodes[turn]["created"]) for turn in _conversations(nodes)}:
        wrong.append(f"conversations are {listed}, not {_conversations(nodes)} by when they began")
    used = {(*member.decode().split("/"),): score for member, score in own.get("trees", {}).items()}
    if _ordered(own, "trees") != used:
        wrong.append(f"trees of tenants are {_ordered(own, 'trees')}, and of all {used}")
    newest = max((score for scores in (leaves, own.get("trees", {})) for score in scores.values()), default=0.0)
    if int(own.get("clock", 0)) < newest:
        wrong.append(f"the clock is {own.get('clock')}, before the last use at {newest}")
    noted = {name.decode(): int(value) for name, value in own.get("usage", {}).items()}
    counters = {name: number for name, number in noted.items() if name != "archive" and number}
    ranked = {
        f"{counter}/{tenant.decode()}": int(score)
        for counter in COUNTERS
        for tenant, score in own.get(f"usage:{counter}", {}).items()
    }
    pictures = {
        (match["tenant"], match["digest"]): value for key, value in own.items() if (match := _PICTURE.fullmatch(key))
    }
    wanted = _usage(nodes, pictures, shard_name)
    if counters | ranked != wanted:
        wrong.append(f"usage is {counters | ranked}, not {wanted}")
    counts = {picture: int(value[b"turns"]) for picture, value in pictures.items()}
    if counts != _shown(nodes):
        wrong.append(f"pictures are shown {counts}, not {_shown(nodes)}")
    return wrong + job_complaints(own, nodes, turns) + _file_complaints(own)


def _file_complaints(own: Dump) -> list[str]:
    """All that doesn't add up of files: no upload is under way, and nothing waits to be deleted."""
    wrong: list[str] = []
    tenants = {key.partition(":")[2] for key in own if key.startswith(("files:", "file-room:"))}
    held = sum(len(piece) for key in own if key.startswith("pieces:") for piece in own[key].values())
    if held != int(own.get("files-held", 0)):
        wrong.append(f"{held} bytes of files are held, and it counts {own.get('files-held')}")
    for tenant in tenants:
        room = {name: int(size) for name, size in own.get(f"file-room:{tenant}", {}).items()}
        total = room.pop(b"*", 0)
        if room.keys() != own.get(f"files:{tenant}", {}).keys() or total != sum(room.values()):
            wrong.append(f"the files of {tenant} have the room {room}, {total} in all")
    owners = {name for name in own if name.startswith("pieces:")}
    known = {f"pieces:{tenant}/{id.decode()}" for tenant in tenants for id in own.get(f"files:{tenant}", {})}
    return wrong + [f"{name} is of no file" for name in owners - known]


def _turn_complaints(turn: tuple[str, str], node: dict[str, str], turns: Families, nodes: Nodes) -> list[str]:
    tenant, digits = turn
    families = turns[turn]
    children = [child for child, other in nodes.items() if child[0] == tenant and other["parent"] == digits]
    wrong: list[str] = []
    above = nodes.get((tenant, node["parent"]), {"chain_bytes": 0, "chain_messages": 0})
    blob = families.get("messages")
    if "erased" not in node and int(node["chain_bytes"]) != int(above["chain_bytes"]) + int(node["messages_bytes"]):
        wrong.append(f"chain_bytes is {node['chain_bytes']}, after {above['chain_bytes']} above it")
    if (
        "erased" not in node
        and blob
        and int(node["chain_messages"]) != int(above["chain_messages"]) + len(msgspec.msgpack.decode(blob[1:]))
    ):
        wrong.append(f"chain_messages is {node['chain_messages']}, after {above['chain_messages']} above it")
    if int(node["children"]) != len(children):
        wrong.append(f"counts {node['children']} children and has {len(children)}")
    if len(blob or b"") != int(node["messages_bytes"]):
        wrong.append("its messages don't have the length noted")
    if len(families.get("response", b"")) != int(node["response_bytes"]):
        wrong.append("its response doesn't have the length noted")
    if node["parent"] and (tenant, node["parent"]) not in nodes:
        wrong.append(f"its parent {node['parent']} is gone")
    restored = node.get("deleted") == "backup"  # it waits for what continues it, until a sweep
    if "deleted" in node and not (children or restored or "pins" in families):
        wrong.append("is deleted, and nothing needs it")
    leaves = {leaf.decode() for leaf in turns.get((tenant, node["root"]), {}).get("tree", set())}
    if (digits in leaves) != (not children and not under_way(node)):
        wrong.append(f"has {len(children)} children and the leaves of its tree are {leaves}")
    return wrong


def _orders(own: Dump, name: str) -> dict[str, str]:
    """The keys with the leaves or the conversations of a tenant, and whose they are."""
    return {key: key.partition(":")[2] for key in own if key.startswith(f"{name}:")}


def _ordered(own: Dump, name: str) -> dict[tuple[str, str], float]:
    """What these keys have, of all tenants."""
    orders = _orders(own, name).items()
    return {(tenant, each.decode()): score for key, tenant in orders for each, score in own[key].items()}


def _conversations(nodes: Nodes) -> set[tuple[str, str]]:
    """The conversations that were not deleted."""
    return {turn for turn, node in nodes.items() if turn[1][2:14] == CONVERSATION_MARK and "deleted" not in node}


def _leaves(nodes: Nodes) -> set[tuple[str, str]]:
    parents = {(tenant, node["parent"]) for (tenant, _), node in nodes.items()}
    return {turn for turn, node in nodes.items() if turn not in parents and not under_way(node)}


def _members(turns: set[tuple[str, str]]) -> set[str]:
    return {"/".join(turn) for turn in turns}


def _roots(nodes: Nodes) -> set[str]:
    return _members({turn for turn, node in nodes.items() if not node["parent"]})


def _shown(nodes: Nodes) -> Counter[tuple[str, str]]:
    """How many turns show each picture of a tenant."""
    shown: Counter[tuple[str, str]] = Counter()
    for (tenant, _), node in nodes.items():
        digests = node.get("pictures", "")
        shown.update((tenant, digests[at : at + 64]) for at in range(0, len(digests), 64))
    return shown


def _usage(nodes: Nodes, pictures: dict[Turn, Any], shard_name: int) -> dict[str, int]:
    counted: Counter[str] = Counter()
    leaves, listed = _leaves(nodes), _conversations(nodes)
    for (tenant, digits), node in nodes.items():
        kind, is_root = "tombstones" if "deleted" in node else "responses", int(not node["parent"])
        held = int(node["held"]) + LEAF_BYTES * ((tenant, digits) in leaves)
        held += LISTED_BYTES * ((tenant, digits) in listed) + TREE_BYTES * is_root
        for field, change in ((kind, 1), ("trees", is_root), ("bytes", held)):
            counted[field] += change
            counted[f"{field}/{tenant}"] += change
    for (tenant, digest), turns in _shown(nodes).items():
        length = len(pictures.get((tenant, digest), {}).get(b"bytes", b""))
        held = shard_name + len(":t:") + len(tenant) + PICTURE_BYTES + length + length // ROUNDED_PART
        for field in ("bytes", f"bytes/{tenant}"):
            counted[field] += held * (length > 0) + SHOWN_BYTES * turns
    return {field: value for field, value in counted.items() if value}


def is_known(name: str) -> bool:
    """Whether a shard's key is one of those that jobs and webhooks share."""
    return name in SHARED or name.startswith(_LASTING) or bool(NOTES.fullmatch(name) or _PLACES.fullmatch(name))


def under_way(node: dict[str, str]) -> bool:
    """Whether a response has yet to end."""
    return "submission" in node and node["submission"] == node["digest"]


def job_complaints(own: dict[str, Any], nodes: Nodes, families: Families) -> list[str]:
    """All that doesn't fit, of the jobs, their places and their logs, among a shard's keys."""
    wrong: list[str] = []
    for turn, node in nodes.items():
        found = families[turn]
        judged = _of_a_job(turn, node, found, own) if under_way(node) else _of_an_end(node, found)
        wrong += [f"{turn}: {complaint}" for complaint in judged]
    jobs = {turn: _text(families[turn].get("job", {})) for turn, node in nodes.items() if under_way(node)}
    wrong += _place_complaints(own, jobs) + _log_complaints(own, nodes, jobs)
    counted = Counter((tenant, nodes[tenant, digits]["root"]) for tenant, digits in jobs)
    wrong += [
        f"{turn} counts {node.get('jobs')} jobs in its tree, not {counted[turn]}"
        for turn, node in nodes.items()
        if node.get("jobs") != (str(counted[turn]) if counted[turn] else None)
    ]
    if own.get("outbox", {}).keys() != own.get("outbox-ages", {}).keys():
        wrong.append("the outbox and its ages have not the same webhooks")
    if own.get("outbox-tries", {}).keys() - own.get("outbox", {}).keys():
        wrong.append("tries are noted of webhooks that don't wait")
    return wrong


def _of_a_job(turn: Turn, node: dict[str, str], found: dict[str, Any], own: dict[str, Any]) -> list[str]:
    if not {"job", "spec", "response", "messages"} <= found.keys():
        return [f"is under way with {sorted(found)} alone"]
    tenant, digits = turn
    job, member = _text(found["job"]), "/".join(turn).encode()
    wrong: list[str] = []
    if node["status"] not in RUNNING | {"cancelled"} or node["continuable"] != "0" or "deleted" in node:
        wrong.append(f"is under way and {node['status']}, continuable {node['continuable']}")
    if (node["status"] == "queued") != ("started" not in job) and node["status"] != "cancelled":
        wrong.append(f"is {node['status']} and has started at {job.get('started')}")
    if bool(job["token"]) == bool(job["level"]):
        wrong.append(f"waits at {job['level']!r} and is held by {job['token']!r}")
    if bool(job["token"]) != (member in own.get("leases", {})):
        wrong.append(f"is held by {job['token']!r}, and its lease doesn't say so")
    if level := job["level"]:
        if own.get(f"line:{level}:{tenant}", {}).get(digits.encode()) != float(job["sequence"]):
            wrong.append(f"has no place {job['sequence']} in the line of {tenant} at {level}")
        if tenant.encode() not in own.get(f"turn:{level}", {}):
            wrong.append(f"waits at {level}, and its tenant has no turn")
    last, size = _measure(found)
    if (last, size) != (int(job["last"]), int(job["log_bytes"])):
        wrong.append(f"notes {job['log_bytes']} bytes up to event {job['last']}, has {size} up to {last}")
    if len(found.get("snapshot", b"")) != int(job.get("snapshot_bytes", 0)):
        wrong.append("its snapshot doesn't have the length noted")
    return wrong


def _of_an_end(node: dict[str, str], found: dict[str, Any]) -> list[str]:
    wrong: list[str] = []
    if node["status"] in RUNNING:
        wrong.append(f"is {node['status']} and has ended")
    if extra := {"job", "spec", "snapshot"} & found.keys():
        wrong.append(f"has ended and still has {extra}")
    if _measure(found)[1] != int(node.get("log_bytes", 0)):
        wrong.append(f"notes {node.get('log_bytes')} bytes of events, has {_measure(found)[1]}")
    if "fleeting" in node and node["continuable"] != "0":
        wrong.append("goes with its events, and may be continued")
    return wrong


def _place_complaints(own: dict[str, Any], jobs: Nodes) -> list[str]:
    """Every place is that of a job."""
    places: dict[str, set[str]] = {"leases": set()}
    for (tenant, digits), job in jobs.items():
        if job.get("token"):
            places["leases"].add(f"{tenant}/{digits}")
        if level := job.get("level"):
            places.setdefault(f"queued:{level}", set()).add(f"{tenant}/{digits}")
            places.setdefault(f"line:{level}:{tenant}", set()).add(digits)
            if level in "45":
                places.setdefault(f"accepted:{level}", set()).add(f"{tenant}/{digits}")
    stored = {name for name in own if name == "leases" or name.startswith(("accepted:", "queued:", "line:"))}
    return [
        f"{name} has {_names(own, name)}, not {places.get(name, set())}"
        for name in sorted(stored | places.keys())
        if _names(own, name) != places.get(name, set())
    ]


def _log_complaints(own: dict[str, Any], nodes: Nodes, jobs: Nodes) -> list[str]:
    ended = {"/".join(turn): int(node["log_bytes"]) for turn, node in nodes.items() if "log_bytes" in node}
    wrong = [] if _names(own, "logs") == set(ended) else [f"logs are {_names(own, 'logs')}, not {set(ended)}"]
    logged = sum(ended.values()) + sum(int(job.get("log_bytes", 0)) for job in jobs.values())
    if int(own.get("logged", 0)) != logged:
        wrong.append(f"logged is {own.get('logged')}, not {logged}")
    return wrong


def _names(own: dict[str, Any], name: str) -> set[str]:
    return {member.decode() for member in own.get(name, {})}


def _measure(found: dict[str, Any]) -> tuple[int, int]:
    """The number of the last event of a log, and the bytes of all of it, with the snapshot."""
    entries = found.get("log", [])
    last = int(entries[-1][0].partition(b"-")[0]) - 1 if entries else -1
    return last, sum(len(blob) + ENTRY_BYTES for _, blob in entries) + len(found.get("snapshot", b""))


def _text(job: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in job.items()}
