"""Web pages of other origins: those that a setting names may call, no others, and none without keys."""

from collections.abc import Callable

import pytest

from service.process import load_settings
from service.settings.sources import SettingsError
from tests.support.service.process import ACME_KEY, MODEL, Served

Start = Callable[..., Served]
PAGE = "https://chat.example.com"


def preflight(service: Served, origin: str) -> tuple[int, str | None]:
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    answer = service.http().options("/v1/responses", headers=asked)
    return answer.status_code, answer.headers.get("access-control-allow-origin")


def test_a_page_that_is_named_may_call_and_read_the_answer(beside: Start) -> None:
    service = beside(api_keys=f"acme:{ACME_KEY}", cors_origins=f"{PAGE}, http://localhost:3000")
    assert preflight(service, PAGE) == (200, PAGE)
    assert preflight(service, "https://elsewhere.example.com")[1] is None

    body = {"model": MODEL, "input": "Hi"}
    answer = service.http(ACME_KEY).post("/v1/responses", json=body, headers={"origin": PAGE})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    assert "etag" in answer.headers["access-control-expose-headers"]
    known = {"origin": PAGE, "if-none-match": "*"}
    same = service.http(ACME_KEY).get(f"/v1/responses/{answer.json()['id']}", headers=known)
    assert (same.status_code, same.headers["access-control-allow-origin"]) == (304, PAGE)
    assert same.headers["vary"] == "Origin"
    refused = service.http().post("/v1/responses", json=body, headers={"origin": PAGE})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)


def test_without_the_setting_there_is_no_such_header(tenants: Served) -> None:
    assert preflight(tenants, PAGE) == (401, None)


@pytest.mark.parametrize(
    ("origins", "keys", "words"),
    [
        ("*", "", "set HARMONIUM_API_KEYS"),
        ("chat.example.com", "acme:key", "is no origin"),
        (f"{PAGE}/chat", "acme:key", "without a path"),
    ],
)
def test_origins_that_can_not_be_are_refused(origins: str, keys: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings(cors_origins=origins, api_keys=keys)
