"""An archive as a plain dict whose changes have conditions: put with right etags and stale ones, delete, list."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.support.archive.opened import REMOTE, Place, emptied, open_at
from tests.support.lengths import lengths

STEPS = 30
KEYS = st.sampled_from(
    [
        *(f"v1/{shard}/{tenant}/{tree}/0" for shard in ("0a", "0b") for tenant in ("a", "a-b") for tree in ("1", "2")),
        *("v1/0a/a/1/1", "v1/0a", "v1/dictionary/1", "v1/0aa/x", "v0/0a/x", "v2", "other"),
    ]
)
PREFIXES = st.sampled_from(["", "v1/", "v1/0a/", "v1/0a/a/", "v1/0b/a-b/1/", "v1/0aa/", "v1/dictionary/", "v2/"])
VALUES = st.binary(max_size=20)


class Model(RuleBasedStateMachine):
    """The values by key, each with the etag that its put returned, and all etags that there ever were."""

    place: Place

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.run = self.runner.run
        self.archive = open_at(self.place)
        self.run(emptied(self.archive))
        self.values: dict[str, tuple[bytes, str]] = {}
        self.former: dict[str, list[str]] = {}

    def teardown(self) -> None:
        self.run(self.archive.close())
        self.runner.close()

    @rule(key=KEYS, value=VALUES)
    def create(self, key: str, value: bytes) -> None:
        etag = self.run(self.archive.put(key, value, only_if=None))
        assert (etag is None) == (key in self.values)
        self.note(key, value, etag)

    @rule(key=KEYS, value=VALUES)
    def replace(self, key: str, value: bytes) -> None:
        if key in self.values:
            etag = self.run(self.archive.put(key, value, only_if=self.values[key][1]))
            assert etag is not None
            self.note(key, value, etag)

    @rule(key=KEYS, value=VALUES, data=st.data())
    def replace_what_was(self, key: str, value: bytes, data: st.DataObject) -> None:
        """By an etag that is no more; S3's is a digest, so that it may be the etag of what is there again."""
        current = self.values.get(key, (b"", ""))[1]
        if stale := [etag for etag in self.former.get(key, []) if etag != current]:
            assert self.run(self.archive.put(key, value, only_if=data.draw(st.sampled_from(stale)))) is None

    @rule(keys=st.lists(KEYS, max_size=4))
    def delete(self, keys: list[str]) -> None:
        self.run(self.archive.delete(*keys))
        for key in keys:
            self.values.pop(key, None)

    @rule(prefix=PREFIXES, after=st.one_of(st.just(""), KEYS), limit=st.integers(1, 6))
    def list(self, prefix: str, after: str, limit: int) -> None:
        found = self.run(self.archive.list(prefix, after=after, limit=limit))
        there = sorted(key for key in self.values if key.startswith(prefix) and key > after)[:limit]
        assert [(entry.key, entry.size) for entry in found] == [(key, len(self.values[key][0])) for key in there]

    @invariant()
    def all_is_there(self) -> None:
        listed = self.run(self.archive.list(""))
        assert [entry.key for entry in listed] == sorted(self.values)
        for key, value in self.values.items():
            assert self.run(self.archive.get(key)) == value

    def note(self, key: str, value: bytes, etag: str | None) -> None:
        if etag is not None:
            self.values[key] = (value, etag)
            self.former.setdefault(key, []).append(etag)


@pytest.mark.parametrize("examples", lengths(10, 400))
def test_an_archive_is_a_dict(place: Place, examples: int) -> None:
    """Of one behind a server fewer steps are taken."""
    machine = type("Machine", (Model,), {"place": place})
    limits = settings(max_examples=examples // 10 if place.kind in REMOTE else examples, stateful_step_count=STEPS)
    run_state_machine_as_test(machine, settings=limits)
