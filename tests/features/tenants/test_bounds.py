"""Bounds of projects, their accounts and keys: each is refused with a code of its own."""

import pytest

from service.errors import ApiError
from service.features.tenants import directory as directories
from service.features.tenants.audit import Actor
from service.features.tenants.directory import Directory, Wish
from store.history.history import ConversationHistoryStore
from store.registry import Registry

OPS = Actor("ops")


async def test_each_bound_is_refused_with_a_code_of_its_own(
    store: ConversationHistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "MAX_PROJECTS", 1)
    monkeypatch.setattr(directories, "MAX_PROJECT_KEYS", 1)
    directory, wish = Directory(Registry(store), lambda: 1_000.0), Wish("key")
    project = await directory.create_project(OPS, "Chat")
    account, _ = await directory.create_account(OPS, project.id, "web", wish)
    await directory.create_admin_key(OPS, wish)
    codes: list[str | None] = []
    for refused in (
        directory.create_project(OPS, "Another"),
        directory.create_account(OPS, project.id, "another", None),
        directory.create_key(OPS, project.id, account.id, wish),
        directory.create_admin_key(OPS, wish),
    ):
        with pytest.raises(ApiError) as error:
            await refused
        codes.append(error.value.code)
    assert codes == ["too_many_projects", "too_many_accounts", "too_many_keys", "too_many_keys"]
