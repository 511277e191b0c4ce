"""The files of the console over HTTP: open to everybody, kept as long as they may be, and under a strict policy."""

import gzip
import re

import pytest

from service.web.console.page import FILES
from tests.support.service.process import ServiceProcess

MOST_BYTES = 70_000
"""Of all of it, compressed."""


def assets(service: ServiceProcess) -> list[str]:
    """The paths of what the page loads."""
    return re.findall(r'(?:href|src)="(/[^"]+)"', service.http().get("/console").text)


@pytest.mark.parametrize("path", ["/console", "/console/"])
def test_the_page_is_open_and_never_kept(tenants: ServiceProcess, path: str) -> None:
    answer = tenants.http().get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["cache-control"] == "no-store"
    assert tenants.http().head(path).headers["content-length"] == answer.headers["content-length"]


def test_what_it_loads_is_kept_for_good_as_its_names_are_of_what_is_in_it(service: ServiceProcess) -> None:
    paths = assets(service)
    assert sorted(path.rpartition(".")[2] for path in paths) == ["css", "js"]
    for path in paths:
        answer = service.http().get(path)
        assert "immutable" in answer.headers["cache-control"]
        assert re.search(r"-[0-9A-Z]{8}\.(js|css)$", path)


def test_everything_has_the_strict_policy_and_no_cookie(service: ServiceProcess) -> None:
    for path in ("/console", *assets(service)):
        headers = service.http().get(path).headers
        policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert "set-cookie" not in headers


def test_the_page_has_no_script_or_style_of_its_own_and_loads_nothing_from_elsewhere() -> None:
    text = (FILES / "index.html").read_text()
    assert not re.search(r"<style|style=|\bon[a-z]+=|https?:", text)
    assert re.findall(r"<script[^>]*>(.*?)</script>", text) == [""]


def test_all_of_it_is_small_compressed() -> None:
    assert sum(len(gzip.compress(file.read_bytes())) for file in FILES.iterdir()) <= MOST_BYTES


@pytest.mark.parametrize(
    "path", ["/console/static/", "/console/static/x.js", "/console/static/index.html", "/console/static/%2e%2e/page.py"]
)
def test_nothing_else_is_there(tenants: ServiceProcess, path: str) -> None:
    answer = tenants.http().get(path)
    assert (answer.status_code, "error" in answer.json()) == (404, True)


def test_the_api_behind_it_is_not_open(tenants: ServiceProcess) -> None:
    for path in ("/console/api/trees", "/console/api", "/console/x"):
        assert tenants.http().get(path).status_code == 401


def test_a_web_page_that_rebinds_a_name_is_refused(service: ServiceProcess) -> None:
    assert service.http().get("/console", headers={"host": "evil.example"}).status_code == 403


def test_nothing_is_posted_there(service: ServiceProcess) -> None:
    answer = service.http().post("/console", json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
