"""The warnings of a start, as the log of a real process has them."""

import re
from pathlib import Path
from typing import Any

import pytest

from service.features.operator import at_start
from service.features.operator.at_start import warn_of_default
from service.process import Settings, load_settings
from tests.support.ports import free_port
from tests.support.service.inside import serving
from tests.support.service.process import ALONE, MODEL, ServiceProcess
from tests.support.service.terminal import at_a_terminal
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


def test_at_a_terminal_the_card_has_the_warnings_as_well(tmp_path: Path) -> None:
    with server(tmp_path, *PLAIN) as redis:
        settings = {"redis_url": f"redis://{redis.address}", "port": free_port()}
        with at_a_terminal(tmp_path, "serve", program=ALONE, **settings) as terminal:
            terminal.shows("try it")
            card = terminal.text.rpartition("conversations  in ")[2]
    assert re.search(r"\n +warning +the Redis, persistence: .+\n", card), terminal.text


@pytest.mark.parametrize("keys", [{"api_keys": f"acme:{KEY}"}, {"admin_key": KEY}, {"projects": True}])
async def test_the_number_of_conversations_that_no_key_reads_is_told_up_to_a_bound(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any]
) -> None:
    monkeypatch.setattr(at_start, "MOST_COUNTED", 3)
    keyed, told = load_settings(**keys), list[str]()
    async with serving(settings) as service, service.client() as client:
        for _ in range(4):
            told += [each.partition(", ")[0] for each in await warn_of_default(keyed, service.store)]
            await client.responses.create(model=MODEL, input="Hi")
        assert await warn_of_default(settings, service.store) == []
    assert told == [
        "1 conversation in the store belongs to the tenant default",
        "2 conversations in the store belong to the tenant default",
        "3 or more conversations in the store belong to the tenant default",
    ]


def test_what_was_made_without_keys_is_told_of_once_there_are_some(tmp_path: Path) -> None:
    told = "1 conversation in the store belongs to the tenant default"
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
