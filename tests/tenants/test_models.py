"""Which models a project may use."""

import pytest

from service.errors import InvalidRequest
from service.tenants.permissions import ALL, MAX_LISTED, ModelPermissions, read_permissions


def test_a_list_allows_what_is_on_it_or_all_else_by_any_of_a_models_names() -> None:
    allowed, denied = ModelPermissions("allow_list", ("a", "b")), ModelPermissions("deny_list", ("a", "b"))
    for names, listed in {("a",): True, ("x", "b"): True, ("x",): False, ("A",): False, (): False}.items():
        assert allowed.allow(names) is listed
        assert denied.allow(names) is not listed
    assert ALL.allow(("a",))
    assert not ModelPermissions("allow_list").allow(("a",))


def test_a_list_has_each_model_once_and_a_bound() -> None:
    assert read_permissions("allow_list", ["a", "b", "a"]) == ModelPermissions("allow_list", ("a", "b"))
    assert len(read_permissions("deny_list", list(map(str, range(MAX_LISTED)))).ids) == MAX_LISTED
    for ids in (list(map(str, range(MAX_LISTED + 1))), [""], ["a\nb"], ["m" * 257]):
        with pytest.raises(InvalidRequest):
            read_permissions("deny_list", ids)
