"""The probe refuses every store that breaks a promise, and warns of what it may know."""

from collections.abc import Iterator, Sequence

import pytest

from store.archive.archive import Archive
from store.archive.objects import VERSIONED
from store.archive.port import ArchiveEntry, Stored
from store.errors import ArchiveUnfit
from tests.support.archive import servers
from tests.support.archive.opened import Place, opened


class Wanting:
    """A backend in memory that breaks one promise."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.values: dict[str, bytes] = {}
        self.writes = 0

    async def get(self, key: str) -> Stored | None:
        if self.fault == "invents" and not self.writes:
            return Stored(b"x", "0")
        if key not in self.values or (self.fault == "forgets" and self.writes == 1):
            return None
        return Stored(self.values[key], self.values[key].hex())

    async def put(self, key: str, value: bytes, only_if: str | None) -> str | None:
        there = key in self.values
        self.writes += 1
        if only_if is None and there and self.fault != "creates again":
            if self.fault == "refuses, and writes":
                self.values[key] = value
            return None
        if only_if is not None and (not there or self.values[key].hex() != only_if) and self.fault != "replaces stale":
            return None
        if only_if is None or self.fault != "never replaces":
            self.values[key] = value
        return value.hex()

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if self.fault != "never deletes":
                self.values.pop(key, None)

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[ArchiveEntry]:
        return ()

    def warnings(self) -> Sequence[str]:
        return ("beware",)

    async def close(self) -> None: ...


async def test_a_sound_store_is_fit_and_its_warnings_are_told() -> None:
    sound = Wanting("nothing")
    assert await Archive(sound).probe() == ("beware",)
    assert sound.values == {}


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("invents", "has a value where none"),
        ("forgets", "doesn't tell what was written"),
        ("creates again", "ignores If-None-Match"),
        ("never replaces", "doesn't replace a value by its etag"),
        ("replaces stale", "ignores If-Match"),
        ("refuses, and writes", "doesn't replace a value by its etag"),
        ("never deletes", "still tells what was deleted"),
    ],
)
async def test_a_store_that_breaks_a_promise_is_refused(fault: str, told: str) -> None:
    with pytest.raises(ArchiveUnfit, match=told):
        await Archive(Wanting(fault)).probe()


@pytest.mark.parametrize("ground", ["s3"], indirect=True)
async def test_a_bucket_that_keeps_versions_is_warned_of(ground: Place) -> None:
    servers.make_bucket(ground.port, "versioned")
    servers.keep_versions(ground.port, "versioned")
    for bucket, warnings in (("versioned", (VERSIONED,)), (servers.BUCKET, ())):
        async with opened(Place("s3", f"s3://{bucket}/probed", ground.port, ground.environment)) as archive:
            assert await archive.probe() == warnings


@pytest.fixture(scope="module")
def s3rver() -> Iterator[int]:
    with servers.s3rver() as port:
        yield port


@pytest.mark.clients
async def test_a_server_without_conditional_writes_is_refused(s3rver: int) -> None:
    async with opened(Place("s3", f"s3://{servers.BUCKET}", s3rver, servers.access(s3rver))) as archive:
        with pytest.raises(ArchiveUnfit, match="ignores If-None-Match"):
            await archive.probe()
