"""Permissions: which scope a request needs, what a key with some of them may do, and which models a project may use."""

import pytest

from service.errors import ApiError
from service.features.proxy.passed import Endpoint
from service.features.tenants.permissions import (
    ALL,
    READ_ALL,
    SCOPES,
    ModelPermissions,
    check_scope,
)
from service.web.auth import ADMINISTRATION, behind_version, scope_of
from tests.support.service.routes import served


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("POST", "/responses", "api.responses.write"),
        ("GET", "/responses/resp_1/input_items", "api.responses.read"),
        ("GET", "/models/openai/gpt-oss-20b", "api.model.read"),
        ("POST", "/chat/completions", "api.model.request"),
        ("GET", "/responsesx", "api.model.request"),
        ("PROPFIND", "/models", "api.model.write"),
    ],
)
def test_a_request_needs_the_scope_of_what_it_asks_for(method: str, path: str, needed: str) -> None:
    assert scope_of(method, path) == needed


def test_every_route_needs_a_scope_that_there_is() -> None:
    found = {
        path: scope_of(method, behind_version(path))
        for method, path in served()
        if "/v1/" in path and not path.startswith(ADMINISTRATION)
    }
    assert set(found.values()) == set(SCOPES) - {READ_ALL}
    assert scope_of("GET", behind_version("/console/api/trees")) == "api.responses.read"
    assert {path for path, scope in found.items() if scope == "api.model.request"} == set(Endpoint)


@pytest.mark.parametrize("needed", SCOPES)
def test_a_key_with_a_scope_does_that_and_nothing_else(needed: str) -> None:
    check_scope((), needed)
    check_scope((needed,), needed)
    others = tuple(each for each in SCOPES if each not in (needed, READ_ALL))
    with pytest.raises(ApiError) as refusal:
        check_scope(others, needed)
    assert refusal.value.status == 403
    assert needed in refusal.value.message


def test_reading_all_is_reading_all_and_changing_nothing() -> None:
    for each in SCOPES:
        if each.endswith(".read"):
            check_scope((READ_ALL,), each)
        else:
            with pytest.raises(ApiError):
                check_scope((READ_ALL,), each)


def test_a_list_allows_what_is_on_it_or_all_else_by_any_of_a_models_names() -> None:
    allowed, denied = ModelPermissions("allow_list", ("a", "b")), ModelPermissions("deny_list", ("a", "b"))
    for names, listed in {("a",): True, ("x", "b"): True, ("x",): False, ("A",): False, (): False}.items():
        assert allowed.allow(names) is listed
        assert denied.allow(names) is not listed
    assert ALL.allow(("a",))
    assert not ModelPermissions("allow_list").allow(("a",))
