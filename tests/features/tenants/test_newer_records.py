"""Records with members that this release doesn't know can be changed and revoked, and keep these members."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from service.features.tenants import directory as directories
from service.features.tenants import records
from service.features.tenants.audit import Actor
from service.features.tenants.directory import ChangedKey, ChangedProject, Directory, Wish
from service.features.tenants.limits import Limit
from service.features.tenants.permissions import ModelPermissions
from service.features.tenants.records import Account, Key, Project, Record, place_of
from store.history.history import ConversationHistoryStore
from store.registry import Change, Registry

OPS = Actor("ops")
PROJECT, ACCOUNT, KEY = "proj_1", "svc_acct_1", "key_1"
NEW = {"region": {"name": "eu", "of": [1, 2.5, None]}}
PLACES = place_of(Project, PROJECT), place_of(Account, ACCOUNT), place_of(Key, KEY)
PERMITTED = ModelPermissions("allow_list", ("a",))

Deed = Callable[[Directory], Awaitable[Any]]


@pytest.fixture
def directory(store: ConversationHistoryStore) -> Directory:
    """The directory of an empty store."""
    return Directory(Registry(store), lambda: 1_000.0)


async def write_newer(directory: Directory) -> list[dict[str, Any]]:
    """A project, an account and a key in it as a later release may write them: spaced, with members of its own."""
    written: list[dict[str, Any]] = [
        {"id": PROJECT, "name": "Chat", "created_at": 1} | NEW,
        {"id": ACCOUNT, "project": PROJECT, "name": "web", "created_at": 1} | NEW,
        {"digest": "d", "redacted": "r", "name": "key", "created_at": 1} | NEW,
    ]
    written[0] |= {"limit": {"max_parallel_responses": 2} | NEW, "models": {"mode": "deny_list", "ids": []} | NEW}
    written[2] = {"id": KEY, "project": PROJECT, "account": ACCOUNT, "scopes": [], "limit": None} | written[2]
    changes = [
        Change(place, b"", msgspec.json.format(msgspec.json.encode(each)))
        for place, each in zip(PLACES, written, strict=True)
    ]
    key = msgspec.json.decode(changes[2].after, type=Key)
    places = directories._places(key, 5)  # pyright: ignore[reportPrivateUsage]
    await directory.registry.change(changes, places=places)
    return written


CHANGES: list[tuple[str, Deed, int, dict[str, Any]]] = [
    (
        "named",
        lambda each: each.update_project(OPS, PROJECT, ChangedProject("Chats", 2.0)),
        0,
        {"name": "Chats", "weight": 2.0},
    ),
    ("archived", lambda each: each.archive_project(OPS, PROJECT), 0, {"archived_at": 1_000}),
    (
        "limited",
        lambda each: each.limit(OPS, PROJECT, {"max_tokens_per_1_minute": 9}),
        0,
        {"limit": {"max_parallel_responses": 2, "max_tokens_per_1_minute": 9} | NEW},
    ),
    (
        "limited otherwise",
        lambda each: each.limit(OPS, PROJECT, {"max_tokens_per_1_minute": 9, "max_parallel_responses": None}),
        0,
        {"limit": {"max_tokens_per_1_minute": 9} | NEW},
    ),
    (
        "permitted",
        lambda each: each.permit_models(OPS, PROJECT, PERMITTED),
        0,
        {"models": {"mode": "allow_list", "ids": ["a"]} | NEW},
    ),
    ("given an account", lambda each: each.create_account(OPS, PROJECT, "other", Wish("key")), 0, {}),
    ("renamed", lambda each: each.rename_account(OPS, PROJECT, ACCOUNT, "other"), 1, {"name": "other"}),
    ("given a key", lambda each: each.create_key(OPS, PROJECT, ACCOUNT, Wish("other")), 1, {}),
    (
        "changed",
        lambda each: each.change_key(OPS, PROJECT, KEY, ChangedKey(("api.all.read",), 5, Limit())),
        2,
        {"scopes": ["api.all.read"], "expires_at": 1_005, "limit": {}},
    ),
]


@pytest.mark.parametrize(
    ("deed", "number", "changed"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES]
)
async def test_a_newer_record_is_changed_and_keeps_its_members(
    directory: Directory, deed: Deed, number: int, changed: dict[str, Any]
) -> None:
    written = await write_newer(directory)
    await deed(directory)
    found = [msgspec.json.decode(each) for each in await directory.registry.read(*PLACES)]
    written[number] |= changed
    assert found == written


async def test_without_limits_and_models_of_its_own_a_newer_project_has_neither(directory: Directory) -> None:
    (written, *_) = await write_newer(directory)
    await directory.limit(OPS, PROJECT, None)
    await directory.permit_models(OPS, PROJECT, None)
    (found,) = await directory.registry.read(PLACES[0])
    assert msgspec.json.decode(found) == {
        name: each for name, each in written.items() if name not in ("limit", "models")
    }


@pytest.mark.parametrize("whole", [False, True], ids=["its key", "the account"])
async def test_a_newer_key_is_revoked(directory: Directory, whole: bool) -> None:
    await write_newer(directory)
    if whole:
        await directory.delete_account(OPS, PROJECT, ACCOUNT)
    else:
        await directory.delete_key(OPS, PROJECT, KEY)
    project, account, key = await directory.registry.read(*PLACES)
    assert (bool(project), bool(account), bool(key)) == (True, not whole, False)


def later(kind: type[Record]) -> Any:
    """A kind of record as a later release may have it: with one more member, which has a default."""
    more: Any = msgspec.defstruct(
        f"Later{kind.__name__}", [("region", str, "eu")], bases=(kind,), frozen=True, kw_only=True
    )
    records._KINDS[more] = records._KINDS[kind]  # pyright: ignore[reportPrivateUsage]
    return more


async def test_a_release_with_one_more_member_changes_the_records_of_this_one(
    directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = await directory.create_project(OPS, "Chat")
    account, made = await directory.create_account(OPS, project.id, "web", Wish("key"))
    assert made is not None
    monkeypatch.setattr(records, "_KINDS", dict(records._KINDS))  # pyright: ignore[reportPrivateUsage]
    for kind in (Project, Account, Key):
        monkeypatch.setattr(directories, kind.__name__, later(kind))
    await directory.update_project(OPS, project.id, ChangedProject("Chats"))
    await directory.rename_account(OPS, project.id, account.id, "other")
    other = await directory.create_key(OPS, project.id, account.id, Wish("other"))
    await directory.change_key(OPS, project.id, made.key.id, ChangedKey(seconds=5))
    (renamed,) = await directory.registry.read(account.place)
    assert msgspec.json.decode(renamed) == msgspec.to_builtins(account) | {"name": "other"}
    await directory.delete_key(OPS, project.id, made.key.id)
    await directory.delete_account(OPS, project.id, account.id)
    assert await directory.registry.read(account.place, made.key.place, other.key.place) == [b"", b"", b""]
