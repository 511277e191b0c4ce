"""The doctor: each fact that could cost conversations is found, first from made-up facts, then from real servers."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store.doctor.doctor import GIB, Expected, Finding, Level, judge, unreachable
from store.doctor.examine import Examined, ExaminedServer, ahead, examine
from store.embedded import EmbeddedServer
from store.redis.address import AddressKind
from tests.support.store.servers import cluster, sentinels, server

EXPECTED = Expected(AddressKind.SINGLE, shards=2, max_bytes=GIB, local=True)
SAFE = ExaminedServer(
    name="",
    shards=2,
    ping_ms=0.2,
    info={
        "redis_version": "7.0.15",
        "role": "master",
        "cluster_enabled": 0,
        "maxmemory": 3 * GIB,
        "maxmemory_policy": "noeviction",
        "total_system_memory": 8 * GIB,
        "aof_enabled": 1,
        "aof_last_write_status": "ok",
        "rdb_last_bgsave_status": "ok",
        "connected_slaves": 1,
    },
    config={"appendfsync": "everysec", "save": "", "busy-reply-threshold": "5000"},
    cluster={"cluster_state": "ok"},
    ahead_seconds=0.0,
)


def verdicts(found: list[Finding]) -> dict[str, Level]:
    """What is not well, and how it is meant."""
    return {finding.what: finding.level for finding in found if finding.level is not Level.OK}


@pytest.mark.parametrize("kind", AddressKind)
def test_nothing_is_said_against_a_server_that_is_safe(kind: AddressKind) -> None:
    found = judge(replace(EXPECTED, kind=kind), Examined((SAFE,), {}))
    assert verdicts(found) == {}
    assert len(found) > 8
    assert all(finding.why and not finding.remedy for finding in found)


@pytest.mark.parametrize(
    ("of", "change", "expected"),
    [
        ("info", {"redis_version": "6.2.14"}, {"version": "unsafe"}),
        ("info", {"redis_version": "a fork's"}, {"version": "warn"}),
        ("info", {"role": "slave"}, {"role": "unsafe"}),
        ("info", {"cluster_enabled": 1}, {"mode": "unsafe"}),
        ("info", {"maxmemory_policy": "allkeys-lru"}, {"eviction policy": "unsafe"}),
        ("info", {"maxmemory_policy": "allkeys-lru", "maxmemory": 0}, {"eviction policy": "warn", "memory": "warn"}),
        ("info", {"maxmemory": 2 * GIB - 1}, {"memory": "warn"}),
        ("info", {"aof_enabled": 0}, {"persistence": "unsafe"}),
        ("info", {"aof_last_write_status": "err"}, {"writes to disk": "unsafe"}),
        ("node", {"ping_ms": 50.0}, {"reachable": "warn"}),
        ("node", {"ahead_seconds": -5.1}, {"clock": "warn"}),
        ("node", {"ahead_seconds": -4.9}, {}),
        ("node", {"config": {"appendfsync": "no", "busy-reply-threshold": "5000"}}, {"sync to disk": "warn"}),
        ("node", {"config": {"appendfsync": "always", "busy-reply-threshold": "10"}}, {"scripts": "warn"}),
        ("node", {"shards": 4}, {"memory": "warn"}),
        ("service", {"local": False}, {"password": "unsafe"}),
        ("service", {"log_bytes": GIB // 2 + 1}, {"memory": "warn"}),
        ("service", {"disk_bytes": 6 * GIB - 1}, {"room on the disk": "warn"}),
        ("service", {"replicas": 2}, {"replicas": "unsafe"}),
        ("service", {"kind": AddressKind.CLUSTER, "shards": 1}, {"shards": "warn"}),
    ],
)
def test_a_fact_of_the_server_or_the_service_is_judged(
    of: str, change: dict[str, Any], expected: dict[str, str]
) -> None:
    node = replace(SAFE, info={**SAFE.info, **change}) if of == "info" else SAFE
    node = replace(SAFE, **change) if of == "node" else node
    found = judge(replace(EXPECTED, **change) if of == "service" else EXPECTED, Examined((node,), {}))
    assert verdicts(found) == expected
    assert all(finding.remedy for finding in found if finding.level is not Level.OK)
    assert [finding.level for finding in found] == sorted((each.level for each in found), key=list(Level).index)[::-1]


@pytest.mark.parametrize("kind", [AddressKind.SENTINEL, AddressKind.CLUSTER])
def test_a_primary_that_nobody_could_follow_is_named(kind: AddressKind) -> None:
    alone = replace(SAFE, name="h:1", info={**SAFE.info, "connected_slaves": 0})
    found = judge(replace(EXPECTED, kind=kind), Examined((alone,), {}))
    assert verdicts(found) == {"replicas": "warn"}
    assert {finding.node for finding in found if finding.what == "replicas"} == {"h:1"}


def test_a_cluster_that_is_not_whole_is_unsafe_and_so_is_a_node_that_is_silent() -> None:
    expected = replace(EXPECTED, kind=AddressKind.CLUSTER)
    broken = replace(SAFE, cluster={"cluster_state": "fail"})
    assert verdicts(judge(expected, Examined((broken,), {}))) == {"cluster state": "unsafe"}
    assert verdicts(judge(expected, Examined((SAFE,), {"h:2": "gone"}))) == {"reachable": "unsafe"}


def test_of_what_a_server_keeps_to_itself_the_doctor_says_that_it_is_unknown() -> None:
    silent = replace(SAFE, info={}, config=None, cluster={})
    found = verdicts(judge(replace(EXPECTED, kind=AddressKind.CLUSTER), Examined((silent,), {})))
    assert set(found.values()) == {"warn"}
    assert found.keys() >= {"version", "role", "cluster state", "eviction policy", "memory", "persistence", "replicas"}


async def diagnosis(expected: Expected, url: str) -> dict[str, Level]:
    """What is not well on a real server, but for how long its answers take, which is a matter of this machine."""
    examined = await examine(url, "prefix", expected.shards, timeout_seconds=6.0)
    nodes = tuple(replace(node, ping_ms=SAFE.ping_ms) for node in examined.nodes)
    return verdicts(judge(expected, replace(examined, nodes=nodes)))


SAFELY = ("--appendonly", "yes", "--maxmemory", "3gb", "--maxmemory-policy", "noeviction")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {}),
        (("--maxmemory-policy", "allkeys-lru"), {"eviction policy": "unsafe"}),
        (("--appendonly", "no"), {"persistence": "unsafe"}),
        (("--replicaof", "127.0.0.1", "1"), {"role": "unsafe"}),
        (("--rename-command", "CONFIG", ""), {"sync to disk": "warn"}),
    ],
    ids=lambda options: " ".join(options),
)
async def test_a_real_server_is_found_to_be_as_it_is(
    tmp_path: Path, options: tuple[str, ...], expected: dict[str, str]
) -> None:
    with server(tmp_path, *SAFELY, *options) as started:
        assert await diagnosis(EXPECTED, f"redis://{started.address}") == expected


async def test_the_embedded_server_is_safe(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "data") as embedded:
        assert await diagnosis(replace(EXPECTED, max_bytes=1 << 20, embedded=True), embedded.url) == {}


async def test_every_primary_of_a_cluster_is_examined(tmp_path: Path) -> None:
    expected = replace(EXPECTED, kind=AddressKind.CLUSTER, shards=16, max_bytes=GIB // 16)
    with cluster(tmp_path, *SAFELY) as found:
        assert await diagnosis(expected, found.url) == {"replicas": "warn"}
        assert await diagnosis(replace(expected, shards=1), found.url) == {"replicas": "warn", "shards": "warn"}
        examined = await examine(found.url, "prefix", 16, timeout_seconds=6.0)
        assert sum(node.shards for node in examined.nodes) == 16
        os.kill(found.primaries[2].process.pid, signal.SIGSTOP)
        assert await diagnosis(expected, found.url) == {"replicas": "warn", "reachable": "unsafe"}


async def test_a_primary_behind_sentinels_is_examined(tmp_path: Path) -> None:
    with sentinels(tmp_path, *SAFELY) as watched:
        assert await diagnosis(replace(EXPECTED, kind=AddressKind.SENTINEL), watched.url) == {}


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("invalid username-password pair or user is disabled.", "correct the user and the password"),
        ('Protocol error, got "<" as reply type byte', "something else than a Redis"),
        ("Error -2 connecting to nowhere:1. Name or service not known.", "correct the host"),
        ("Error 111 connecting to 127.0.0.1:1. Connect call failed ('127.0.0.1', 1).", "start it, or correct"),
    ],
)
def test_the_remedy_is_for_the_reason_why_a_server_can_not_be_asked(reason: str, remedy: str) -> None:
    assert remedy in unreachable(reason).remedy


@pytest.mark.parametrize(
    ("told", "expected"), [(10_000_000, 5.0), (1_000_000, -3.0), (4_500_000, 0.0), (None, None), ("soon", None)]
)
def test_a_clock_may_be_right_that_was_read_between_two_moments(told: object, expected: float | None) -> None:
    assert ahead(told, before=4.0, after=5.0) == expected
