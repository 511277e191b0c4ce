"""From a URL to an archive: what each names, and what a wrong one is told."""

import sys
from pathlib import Path
from time import monotonic

import asyncpg
import pytest

from store.archive import archive as archives
from store.archive.archive import FORMAT, FORMAT_KEY, Archive
from store.archive.opening import open_archive
from store.archive.port import Bounds
from store.errors import ArchiveRefused, ArchiveUnavailable, NewerFormat, Unsupported
from tests.support.archive import servers
from tests.support.archive.opened import Place, new_name, opened

SECRET = "hunter2"
HASTY = Bounds(total_seconds=1.5, request_seconds=0.6, connect_seconds=0.4)


async def test_sqlite_is_below_the_data_folder_unless_it_names_another(tmp_path: Path) -> None:
    for url, folder in (("sqlite", "data/archive"), (f"sqlite://{tmp_path}/else%20where", "else where")):
        archive = open_archive(url, tmp_path / "data")
        await archive.put("v1/0a/x/1/0", b"x", only_if=None)
        await archive.close()
        assert (tmp_path / folder / "0a.db").exists()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "should be sqlite, or begin with"),
        (f"redis://:{SECRET}@host", "should be sqlite, or begin with"),
        (f"sqlite://{SECRET}/x", "should have an absolute path"),
        ("s3://", "should be s3://BUCKET"),
        (f"s3://key:{SECRET}@bucket", "keys are in the provider's variables"),
        (f"az://bucket/a b/{SECRET}", "should have a prefix of parts"),
        (f"postgresql://me:{SECRET}@host", "should name a database"),
        (f"postgresql://me:{SECRET}/more@host/database", "its password has / "),
        (f"postgresql://me:{SECRET}[@host/database", "its password has / "),
        (f"postgresql://me:{SECRET}@host,other:99999/database", "its port is above 65535"),
    ],
)
def test_a_url_that_names_no_archive_is_told_so_without_what_may_be_a_password(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        open_archive(url, Path("/nowhere"))
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [("s3://bucket", "obstore", "archive"), ("postgresql://host/database", "asyncpg", "postgres")],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, url: str, package: str, extra: str
) -> None:
    for name in [name for name in sys.modules if name.startswith("store.archive.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    from store.archive import opening

    with pytest.raises(
        Unsupported, match=rf"needs {package}: install harmonium with the extra {extra} \(docs/deploy.md#extras\)"
    ):
        opening.open_archive(url, Path("/nowhere"))


@pytest.mark.parametrize("ground", ["s3"], indirect=True)
async def test_a_bucket_that_is_not_there_is_no_miss(ground: Place) -> None:
    async with opened(Place("s3", "s3://nobucket", ground.port, ground.environment)) as archive:
        for call in (archive.get("v1/x"), archive.put("v1/x", b"", only_if=None), archive.list("v1/")):
            with pytest.raises(ArchiveRefused, match="bucket"):
                await call


@pytest.mark.parametrize("ground", ["postgres"], indirect=True)
async def test_a_database_that_is_not_there_or_may_not_be_used_is_told(ground: Place) -> None:
    async with opened(Place("postgres", servers.database(ground.port, "nothing"))) as archive:
        with pytest.raises(ArchiveRefused, match='Postgres refuses: database "nothing" does not exist'):
            await archive.get("v1/x")


@pytest.mark.parametrize("ground", ["postgres"], indirect=True)
async def test_a_role_that_may_not_make_the_table_uses_one_that_is_there(ground: Place) -> None:
    database, role = f"d{new_name()}", f"r{new_name()}"
    owner = await asyncpg.connect(ground.url)
    await owner.execute(f"CREATE DATABASE {database}")
    await owner.execute(f"CREATE ROLE {role} LOGIN")
    await owner.close()
    url = servers.database(ground.port, database)
    async with opened(Place("postgres", url.replace(servers.USER, role))) as archive:
        with pytest.raises(ArchiveRefused, match="permission denied for schema public"):
            await archive.get("v1/x")
        async with opened(Place("postgres", url)) as owners:
            assert await owners.put("v1/x", b"there", only_if=None)
        owner = await asyncpg.connect(url)
        await owner.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON harmonium_archive TO {role}")
        await owner.close()
        assert len(await archive.probe()) == 1
        assert await archive.get("v1/x")


@pytest.mark.parametrize("url", ["postgresql://harmonium@127.0.0.1:9/postgres", "s3://bucket"])
async def test_a_server_that_is_gone_is_unavailable(url: str) -> None:
    async with opened(Place("gone", url, environment=servers.access(9)), HASTY) as archive:
        with pytest.raises(ArchiveUnavailable) as told:
            await archive.get("v1/x")
    assert told.value.reason


@pytest.mark.parametrize("told", [str(FORMAT + 1), "of another kind"])
async def test_an_archive_of_a_later_format_is_neither_read_nor_written(
    archive: Archive, place: Place, told: str
) -> None:
    key = "v1/0a/x/1/0"
    await archive.put(FORMAT_KEY, told.encode(), only_if=None)
    async with opened(place) as older:
        for ask in (
            lambda: older.probe(),
            lambda: older.get(key),
            lambda: older.put(key, b"x", only_if=None),
            lambda: older.delete(FORMAT_KEY),
            lambda: older.list("v1/"),
        ):
            with pytest.raises(NewerFormat, match=f"format version {FORMAT + 1}, .* upgrade it"):
                await ask()
    there = [each.key for each in await archive.list("")]
    await archive.delete(FORMAT_KEY)
    assert there == [FORMAT_KEY]


async def test_a_later_format_is_noticed_while_an_archive_is_in_use(
    archive: Archive, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(place) as older:
        assert await older.get(FORMAT_KEY) is None
        await archive.put(FORMAT_KEY, b"99", only_if=None)
        assert await older.get(FORMAT_KEY) is not None
        with monkeypatch.context() as later:
            later.setattr(archives, "monotonic", lambda: monotonic() + archives.FORMAT_SECONDS)
            with pytest.raises(NewerFormat, match="format version 99"):
                await older.get(FORMAT_KEY)
    await archive.delete(FORMAT_KEY)
