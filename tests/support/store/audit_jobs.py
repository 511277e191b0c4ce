"""What is wrong with the jobs of a shard, worked out from the keys alone: the part of the oracle (audit.py) for what
stands at the head of store/redis/lua/submit.lua.

A response in the background is under way while its digest is that of its submission: its end gives it another.
"""

import re
from collections import Counter
from typing import Any

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
"""What calls leave for their repeats, and what of approvals, containers, keyed requests, limits and usage is noted;
these expire.
"""
_PLACES = re.compile(r"(?:queued|turn):[0-5]|accepted:[45]|line:[0-5]:[A-Za-z0-9_.-]+")


def is_known(name: str) -> bool:
    """Whether a shard's key is one of those that jobs and webhooks share."""
    return (
        name in SHARED
        or name.startswith(("registry:", "audit-of:", "changes:"))
        or bool(NOTES.fullmatch(name) or _PLACES.fullmatch(name))
    )


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
        f"{name} has {_members(own, name)}, not {places.get(name, set())}"
        for name in sorted(stored | places.keys())
        if _members(own, name) != places.get(name, set())
    ]


def _log_complaints(own: dict[str, Any], nodes: Nodes, jobs: Nodes) -> list[str]:
    ended = {"/".join(turn): int(node["log_bytes"]) for turn, node in nodes.items() if "log_bytes" in node}
    wrong = [] if _members(own, "logs") == set(ended) else [f"logs are {_members(own, 'logs')}, not {set(ended)}"]
    logged = sum(ended.values()) + sum(int(job.get("log_bytes", 0)) for job in jobs.values())
    if int(own.get("logged", 0)) != logged:
        wrong.append(f"logged is {own.get('logged')}, not {logged}")
    return wrong


def _members(own: dict[str, Any], name: str) -> set[str]:
    return {member.decode() for member in own.get(name, {})}


def _measure(found: dict[str, Any]) -> tuple[int, int]:
    """The number of the last event of a log, and the bytes of all of it, with the snapshot."""
    entries = found.get("log", [])
    last = int(entries[-1][0].partition(b"-")[0]) - 1 if entries else -1
    return last, sum(len(blob) + ENTRY_BYTES for _, blob in entries) + len(found.get("snapshot", b""))


def _text(job: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in job.items()}
