"""Who joins a store agrees with its layout record, or doesn't start: services, workers, and commands that judge it."""

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from openai import OpenAI
from redis.asyncio import Redis as AsyncRedis
from typer.testing import CliRunner, Result

from service.commands.command_line import app
from service.commands.serve import StartError, join
from service.process import Settings
from store.archive.opening import open_archive
from store.backup import ownership
from tests.support.archive.back import gone_back, remembered
from tests.support.archive.kept import kept
from tests.support.service.beside import ServiceBeside
from tests.support.service.process import MODEL
from tests.support.store.sample import TENANT, grow


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """A command takes the signals of its process over, which is that of the tests."""
    kept = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    }
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def environment(settings: Settings, **others: object) -> dict[str, str]:
    """What a command is told of a store."""
    told = {"redis_url": settings.redis_url, "redis_prefix": settings.redis_prefix, **others}
    return {f"HARMONIUM_{name.upper()}": str(value) for name, value in told.items()}


def command(settings: Settings, *words: str, **others: object) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200", **environment(settings, **others)})


def other(settings: Settings, **changed: object) -> Settings:
    return settings.model_copy(update=changed)


@pytest.mark.parametrize("role", ["worker", "serve"])
def test_a_process_with_fewer_shards_than_the_store_has_does_not_start(role: str, settings: Settings) -> None:
    join(other(settings, shards=4))
    refused = command(settings, role, shards=1, port=0)
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[-1].startswith("harmonium: the store has 4 shards, and HARMONIUM_SHARDS=1")
    assert "set HARMONIUM_SHARDS=4, or more" in refused.stderr


def test_a_store_that_has_more_shards_keeps_what_its_tenants_have(
    settings: Settings, beside: Callable[..., ServiceBeside]
) -> None:
    def grown_to(shards: int) -> OpenAI:
        join(other(settings, shards=shards))
        return beside(redis_prefix=settings.redis_prefix, shards=shards).client()

    def answered(client: OpenAI) -> str:
        return client.responses.create(model=MODEL, input="hi", extra_headers={"Idempotency-Key": "once"}).id

    before = grown_to(1)
    line = {"custom_id": "1", "method": "POST", "url": "/v1/responses", "body": {"model": MODEL, "input": "hi"}}
    file = before.files.create(file=("lines.jsonl", json.dumps(line).encode()), purpose="batch")
    batch = before.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
    id = answered(before)
    after = grown_to(64)
    assert json.loads(after.files.content(file.id).content) == line
    assert after.batches.retrieve(batch.id).input_file_id == file.id
    assert answered(after) == id


async def _went_back(settings: Settings, folder: Path) -> None:
    """A Redis that has again what was deleted, as its archive knows."""
    archive, redis = open_archive("sqlite", folder), AsyncRedis.from_url(settings.redis_url)
    async with kept(settings.redis_url, settings.redis_prefix, archive) as both:
        await ownership.join(both.store, archive)
        (id,) = await grow(both.store, "one")
        await both.archive_all()
        before = await remembered(redis, settings.redis_prefix)
        await both.store.forget(TENANT, id)
        await both.archive_all()
        await gone_back(redis, settings.redis_prefix, before)
    await redis.aclose()
    await archive.close()


@pytest.mark.parametrize("role", ["worker", "serve"])
def test_a_start_with_a_redis_that_went_back_logs_that_as_it_logs_all_and_says_what_to_do(
    role: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def join_alone(*settings: Settings, **how: bool) -> None:
        join(*settings, **how)
        raise StartError("that is enough")

    asyncio.run(_went_back(settings, tmp_path))
    monkeypatch.setattr(f"service.commands.{role}.join", join_alone)
    ended = command(settings, role, archive_url=f"sqlite://{tmp_path}/archive", log_format="json", port=0)
    (line,) = [each for each in ended.stderr.splitlines() if "Redis lost its last changes" in each]
    assert "harmonium archive accept" in json.loads(line)["remedy"]


def test_the_doctor_says_what_contradicts_the_record(settings: Settings) -> None:
    join(other(settings, shards=4))
    refused = command(settings, "doctor")
    assert refused.exit_code == 1
    assert "HARMONIUM_MAX_TREES=7 here" in command(settings, "doctor", shards=4, max_trees=7).output
