"""The warnings of a start, as the log of a real process has them."""

from pathlib import Path

from tests.support.service.process import ServiceProcess
from tests.support.store.servers import PLAIN, server

REMEDIES = {"persistence": "CONFIG SET appendonly yes", "eviction policy": "CONFIG SET maxmemory-policy noeviction"}
KEY = "sk-" + 32 * "k"


def test_a_redis_that_keeps_nothing_and_deletes_keys_is_warned_of_with_the_doctors_own_rows(tmp_path: Path) -> None:
    with server(tmp_path, *PLAIN, "--maxmemory-policy", "allkeys-lru") as redis:
        process = ServiceProcess(tmp_path / "service", redis_url=f"redis://{redis.address}")
        process.stop()
    for what, remedy in REMEDIES.items():
        (line,) = [line for line in process.log.splitlines() if f"the Redis, {what}" in line]
        assert " WARNING " in line
        assert remedy in line


def test_what_was_made_without_keys_is_told_of_once_there_are_some(tmp_path: Path) -> None:
    told = "belong to the tenant default"
    first = ServiceProcess(tmp_path)
    try:
        made = first.http().post("/v1/responses", json={"model": "demo", "input": "Hi"})
        assert made.status_code == 200
    finally:
        first.stop()
    assert "WARNING" not in first.log
    for number, (keys, warned) in enumerate({f"acme:{KEY}": True, f"acme:{KEY},default:{KEY}d": False}.items()):
        later = ServiceProcess(tmp_path / str(number), data_dir=tmp_path / "data", api_keys=keys)
        try:
            assert later.http(KEY).get(f"/v1/responses/{made.json()['id']}").status_code == 404
        finally:
            later.stop()
        assert (told in later.log) is warned
