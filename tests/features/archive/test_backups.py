"""Backups of a service most of whose conversations have left memory: all of them come back, whatever was lost."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from openai import AuthenticationError, NotFoundError
from pydantic import SecretStr

from service.process import Settings
from service.settings.core import ApiKey
from tests.features.archive.test_archive import Stored, prefix, redis, say, settings, stored
from tests.support import ROOT
from tests.support.service.inside import serving

__all__ = ["prefix", "redis", "settings", "stored"]

CONVERSATIONS = 10
ADMIN = "sk-admin-0123456789abcdef"


def nightly() -> str:
    """The command that docs/operating.md has for cron."""
    found = re.search(r"^15 3 \* \* \*  (.*)$", (ROOT / "docs/operating.md").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].replace("\\%", "%")


def run(line: str, settings: Settings, **other: str) -> str:
    """The output of a line of the shell, with these settings."""
    variables = {
        "HARMONIUM_REDIS_URL": settings.redis_url,
        "HARMONIUM_REDIS_PREFIX": settings.redis_prefix,
        "HARMONIUM_DATA_DIR": str(settings.data_dir),
        "HARMONIUM_ARCHIVE_URL": settings.archive_url,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(line, shell=True, cwd=ROOT, env={**os.environ, **variables, **other}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("after", [{}, {"archive_url": "none", "max_responses": 0}], ids=["an archive", "memory alone"])
async def test_all_that_left_memory_is_in_the_nightly_backup_and_comes_back_after_a_loss_of_everything(
    stored: Stored, settings: Settings, prefix: str, tmp_path: Path, after: Mapping[str, object]
) -> None:
    firsts, ids = list[str](), list[str]()
    for _ in range(CONVERSATIONS):
        firsts.append(await say(stored.ada, "My name is Ada."))
        ids.append(await say(stored.ada, "Count to 2.", firsts[-1]))
        await stored.all_archived()
    for gone in (ids[0], ids[-1]):
        await stored.ada.responses.delete(gone)
    assert sum([await stored.in_memory(id) for id in firsts]) < CONVERSATIONS // 2
    backups = tmp_path / "backups"
    backups.mkdir()
    said = await asyncio.to_thread(run, nightly().replace("/var/backups/harmonium", str(backups)), settings)
    (file,) = backups.iterdir()
    assert f"{2 * CONVERSATIONS - 2} turns in {CONVERSATIONS} conversations" in said
    lost = {"redis_prefix": f"{prefix}-new", "data_dir": tmp_path / "new", **after}
    empty = settings.model_copy(update=lost)
    assert f"{2 * CONVERSATIONS - 2} turns restored" in await asyncio.to_thread(run, f"harmonium restore {file}", empty)
    async with serving(empty) as inside, inside.client("key-of-ada") as ada:
        for id in (*firsts, *ids[1:-1]):
            assert (await ada.responses.retrieve(id)).status == "completed"
        assert await say(ada, "Count to 3.", ids[5])
        for gone in (ids[0], ids[-1]):
            with pytest.raises(NotFoundError):
                await ada.responses.retrieve(gone)


async def test_a_restore_into_the_archive_says_so_and_lists_say_that_it_is_there_until_it_is_asked_for(
    stored: Stored, settings: Settings, prefix: str, tmp_path: Path
) -> None:
    first = await say(stored.ada, "My name is Ada.")
    one, other = await say(stored.ada, "Count to 2.", first), await say(stored.ada, "Count to 3.")
    await asyncio.to_thread(run, f"harmonium backup {tmp_path}/one.hm", settings)
    empty = settings.model_copy(update={"redis_prefix": f"{prefix}-new", "data_dir": tmp_path / "new"})
    said = await asyncio.to_thread(run, f"harmonium restore {tmp_path}/one.hm", empty)
    assert "in the archive: `harmonium ls` lists them" in said
    assert "`harmonium archive restore --into-memory`" in said
    async with serving(empty) as inside:

        async def lists(options: str = "", key: str = "key-of-ada") -> str:
            where = {"HARMONIUM_URL": inside.url, "HARMONIUM_CLIENT_KEY": key}
            return await asyncio.to_thread(run, f"harmonium ls {options} 2>&1", empty, **where)

        assert await lists(key="key-of-bob") == "no conversations\n"
        lines = [line.split("  ") for line in (await lists()).splitlines()]
        assert [(id, *rest) for id, _, *rest in lines] == [
            (other, "1 turn", "archived", "Count to 3.", "1 2 3"),
            (one, "2 turns", "archived", "My name is Ada.", "1 2"),
        ]
        begun, more = (await lists("--limit 1")).splitlines()
        rest = await lists(f"--json --after {more.split()[2]}")
        assert [begun.split()[0], json.loads(rest)["newest"]["id"]] == [other, one]
        async with inside.client("key-of-ada") as ada:
            await say(ada, "Count to 4.", one)
        lines = [line.split("  ")[2:] for line in (await lists()).splitlines()]
        assert lines == [
            ["3 turns", "My name is Ada.", "1 2 3 4"],
            ["1 turn", "archived", "Count to 3.", "1 2 3"],
        ]


async def test_a_key_in_the_settings_opens_what_a_backup_has_of_a_project_that_was_lost_with_its_keys(
    settings: Settings, prefix: str, tmp_path: Path
) -> None:
    administered = settings.model_copy(update={"admin_key": SecretStr(ADMIN)})
    async with serving(administered) as inside, inside.client(ADMIN) as admin:
        project: Any = await admin.post("/organization/projects", body={"name": "Chat"}, cast_to=object)
        accounts = f"/organization/projects/{project['id']}/service_accounts"
        account: Any = await admin.post(accounts, body={"name": "web"}, cast_to=object)
        key = account["api_key"]["value"]
        async with inside.client(key) as client:
            id = await say(client, "My name is Ada.")
        await asyncio.to_thread(run, f"harmonium backup {tmp_path}/one.hm", administered)
    named = {"api_keys": (ApiKey(project["id"], SecretStr("key-of-now")),)}
    lost = {"redis_prefix": f"{prefix}-new", "data_dir": tmp_path / "new", **named}
    empty = administered.model_copy(update=lost)
    await asyncio.to_thread(run, f"harmonium restore {tmp_path}/one.hm", empty)
    async with serving(empty) as inside, inside.client(key) as before, inside.client("key-of-now") as now:
        with pytest.raises(AuthenticationError):
            await before.responses.retrieve(id)
        assert await say(now, "What is my name?", id)
