"""The part of the console that takes an administrator's key: projects, keys, limits, usage and the audit log."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from service.features.tenants.permissions import SCOPES
from tests.features.console.browser.conftest import Open
from tests.features.console.browser.test_accessible import complaints
from tests.features.console.browser.test_hostile import MARKUP, untouched
from tests.features.console.browser.test_list import opened
from tests.support import ROOT
from tests.support.console.administered import ADMIN_KEY, Administered, admin, fill, with_key
from tests.support.service.beside import ServiceBeside
from tests.support.service.process import ACME_KEY, MODEL, Served, ServiceProcess

pytestmark = pytest.mark.clients

BESIDE = Callable[..., ServiceBeside]
REVERSED = "\u05e9\u05dc\u05d5\u05dd (\u0645\u0631\u062d\u0628\u0627)"
"""Hebrew and Arabic, which run from right to left."""

NONE = "\u2013"
"""What stands where there is no limit."""


@pytest.fixture(scope="module")
def administered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, Administered]]:
    """A service with projects, and the one that was used most, for tests that don't mind each other."""
    folder = Path(tmp_path_factory.mktemp("administered"))
    service = ServiceProcess(folder, admin_key=ADMIN_KEY, api_keys=f"acme:{ACME_KEY}")
    yield service, fill(service)
    service.stop()


@pytest.fixture
def empty(beside: BESIDE) -> Served:
    """A service of one's own, with projects and none in it."""
    return beside(admin_key=ADMIN_KEY)


def entered(visit: Open, service: Served, place: str = "", key: str = ADMIN_KEY, **options: object) -> Page:
    """The console, opened with an administrator's key."""
    page = visit(service, place, **options)
    opened(page, key)
    expect(page.get_by_role("navigation", name="Administration")).to_be_visible()
    return page


def row(page: Page, table: str, text: str) -> Any:
    return page.get_by_role("region", name=table).locator("tbody tr", has_text=text)


def test_projects_are_listed_with_archived_ones_where_that_is_wished(
    administered: tuple[ServiceProcess, Administered], visit: Open
) -> None:
    service, letters = administered
    page = entered(visit, service)
    expect(row(page, "Projects", "Letters")).to_contain_text(letters.project)
    expect(row(page, "Projects", "acme")).to_contain_text("in the settings")
    expect(row(page, "Projects", "Trial of last year")).to_have_count(0)
    page.get_by_label("Show archived").check()
    expect(row(page, "Projects", "Trial of last year").locator("time")).to_have_count(2)
    expect(page.get_by_text("Conversations")).to_have_count(0)


def test_a_project_shows_its_keys_accounts_limits_and_usage(
    administered: tuple[ServiceProcess, Administered], visit: Open
) -> None:
    service, letters = administered
    page = entered(visit, service)
    page.get_by_role("link", name="Letters").click()
    expect(page.get_by_role("heading", level=1, name="Letters")).to_be_visible()
    scoped = row(page, "API keys", "for the dashboard")
    expect(scoped).to_contain_text("api.all.read")
    expect(scoped.locator("time")).to_have_count(1)
    expect(scoped).to_contain_text("never")
    first = row(page, "API keys", "Secret Key")
    expect(first).to_contain_text(f"...{letters.key[-4:]}")
    assert letters.key not in page.content()
    expect(row(page, "Service accounts", "mailer")).to_be_visible()
    expect(row(page, "Limits", "all models together").locator("td")).to_have_text(
        ["600", "200,000", *[NONE] * 3, "Change…"]
    )
    expect(row(page, "Usage in all", "demo").locator("td").first).to_have_text("3")
    expect(page.get_by_role("img", name="Tokens of the last week")).to_be_visible()
    page.get_by_label("Grouped by").select_option("key")
    expect(row(page, "Usage in all", "Secret Key").locator("td").first).to_have_text("3")


def test_usage_is_bars_and_the_same_numbers_in_tables(
    administered: tuple[ServiceProcess, Administered], visit: Open
) -> None:
    page = entered(visit, administered[0], "#/usage")
    page.get_by_label("Period").select_option("the last day")
    page.get_by_label("Show").select_option("requests")
    chart = page.get_by_role("img", name="Requests of the last day")
    expect(chart.locator("g")).to_have_count(24)
    expect(chart.locator("rect")).to_have_count(2)
    expect(row(page, "Usage in all", "Letters").locator("td").first).to_have_text("3")
    expect(row(page, "Usage in all", "Travel").locator("td").first).to_have_text("1")
    heights = chart.locator("rect").evaluate_all("all => all.map((each) => +each.getAttribute('height'))")
    assert heights[0] == pytest.approx(3 * heights[1])
    page.get_by_text("in numbers (UTC)").click()
    requests = page.get_by_role("region", name="Usage by hours").locator("tbody td:nth-child(2)").all_inner_texts()
    assert (len(requests), sum(map(int, requests))) == (24, 4)


def test_a_project_and_a_key_are_made_the_value_is_shown_once_and_revoked(empty: Served, visit: Open) -> None:
    page = entered(visit, empty, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="New project").click()
    expect(page.get_by_label("Name")).to_be_focused()
    page.get_by_label("Name").fill("Letters")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Letters")).to_be_visible()
    expect(page.get_by_text("No API keys yet.")).to_be_visible()
    page.get_by_role("button", name="New key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("for the mail")
    dialog.get_by_label("Its name").fill("mailer")
    dialog.get_by_label("api.responses.write").check()
    dialog.get_by_label("Expires").select_option("in 30 days")
    dialog.get_by_role("button", name="Create").click()
    value = dialog.locator(".value code").inner_text()
    page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == value
    assert empty.client(value).responses.create(model=MODEL, input="Hi").status == "completed"
    dialog.get_by_role("button", name="Done").click()
    expect(page.get_by_role("button", name="New key")).to_be_focused()
    expect(row(page, "API keys", "for the mail")).to_contain_text("api.responses.write")
    expect(row(page, "Service accounts", "mailer")).to_be_visible()
    assert value not in page.content()
    assert value not in page.evaluate("JSON.stringify([localStorage, sessionStorage, location.href])")
    revoke = page.get_by_role("button", name="Revoke the key")
    revoke.click()
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(revoke).to_be_focused()
    assert empty.http(value).get("/v1/models").status_code != 401
    revoke.click()
    dialog.get_by_role("button", name="Revoke").click()
    expect(page.locator("[aria-live=polite]")).to_have_text("The key is revoked.")
    expect(page.get_by_text("No API keys yet.")).to_be_visible()
    assert empty.http(value).get("/v1/responses/resp_1").status_code == 401


def test_an_account_is_deleted_and_a_project_archived(empty: Served, visit: Open) -> None:
    with admin(empty) as client:
        project, _ = with_key(client, "Letters")
    page = entered(visit, empty, f"#/projects/{project}")
    page.get_by_role("button", name="Delete the account").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("No service accounts yet.")).to_be_visible()
    expect(page.get_by_text("No API keys yet.")).to_be_visible()
    page.get_by_role("button", name="Archive…").click()
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(page.locator(".about .over")).to_contain_text("archived")
    expect(page.get_by_role("button", name="New key")).to_have_count(0)


def test_each_scope_and_each_type_of_the_audit_log_can_be_chosen(empty: Served, visit: Open) -> None:
    with admin(empty) as client:
        project = client.admin.organization.projects.create(name="One").id
    page = entered(visit, empty, f"#/projects/{project}")
    page.get_by_role("button", name="New key").click()
    scopes = page.get_by_role("group", name="Scopes").locator("code")
    expect(scopes).to_have_count(len(SCOPES))
    assert set(scopes.all_inner_texts()) == set(SCOPES)
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Audit log").click()
    table = (ROOT / "docs/tenants.md").read_text().partition("## The audit log")[2]
    told = re.findall(r"`([a-z_.]+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    chosen = page.get_by_label("Type").locator("option").all_inner_texts()
    assert sorted(chosen) == sorted(["any", *told])


def test_what_two_administrators_did_is_in_the_audit_log_by_type(empty: Served, visit: Open) -> None:
    with admin(empty) as client:
        other = client.admin.organization.admin_api_keys.create(name="Grace")
        client.admin.organization.projects.create(name="One")
    assert other.value is not None
    page = entered(visit, empty, key=other.value)
    page.get_by_role("button", name="New project").click()
    page.get_by_label("Name").fill("Two")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Two")).to_be_visible()
    page.get_by_role("link", name="Audit log").click()
    rows = page.get_by_role("region", name="Audit log").locator("tbody tr")
    expect(rows.locator("th")).to_have_text(["project.created", "project.created", "api_key.created"])
    expect(rows.nth(0)).to_contain_text(f"Grace {other.id}")
    expect(rows.nth(0)).to_contain_text("Two")
    expect(rows.nth(1)).to_contain_text("settings")
    page.get_by_label("Type").select_option("api_key.created")
    expect(rows).to_have_count(1)


def test_names_of_strangers_are_text_everywhere(empty: Served, visit: Open) -> None:
    with admin(empty) as client:
        turned = with_key(client, REVERSED, MARKUP)
        marked = with_key(client, MARKUP, REVERSED)
    for each in (turned, marked):
        empty.client(each.key).responses.create(model=MODEL, input="Hi")
    page = entered(visit, empty)
    expect(row(page, "Projects", MARKUP)).to_be_visible()
    expect(row(page, "Projects", REVERSED).locator("bdi").first).to_have_text(REVERSED)
    untouched(page)
    page.get_by_role("link", name=REVERSED).click()
    expect(row(page, "Service accounts", MARKUP)).to_be_visible()
    untouched(page)
    for button in ("Delete the account", "Archive…", "New key"):
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("dialog")).to_be_visible()
        untouched(page)
        page.keyboard.press("Escape")
    page.goto(f"{empty.url}/console#/usage")
    expect(row(page, "Usage in all", MARKUP)).to_be_visible()
    untouched(page)
    page.goto(f"{empty.url}/console#/audit")
    expect(row(page, "Audit log", MARKUP).first).to_be_visible()
    untouched(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_the_administration(
    administered: tuple[ServiceProcess, Administered], visit: Open, scheme: str
) -> None:
    service, letters = administered
    page = visit(service, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    expect(page.get_by_label("API key")).to_be_focused()
    assert complaints(page) == []
    opened(page, ADMIN_KEY)
    expect(page.get_by_role("region", name="Projects")).to_be_visible()
    assert complaints(page) == []
    page.goto(f"{service.url}/console#/projects/{letters.project}")
    for name in ("API keys", "Service accounts", "Limits", "Usage in all"):
        expect(page.get_by_role("region", name=name, exact=True).locator("table")).to_be_visible()
    assert complaints(page) == []
    for button in ("New key…", "Archive…", "Change…", "Change the limits of all", "Limit the key"):
        page.get_by_role("button", name=button).first.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert (button, complaints(page)) == (button, [])
        page.keyboard.press("Escape")
    page.goto(f"{service.url}/console#/usage")
    page.get_by_text("in numbers (UTC)").click()
    assert complaints(page) == []
    page.goto(f"{service.url}/console#/audit")
    expect(page.get_by_role("region", name="Audit log")).to_be_visible()
    assert complaints(page) == []
    page.goto(f"{service.url}/console#/health")
    expect(page.get_by_role("region", name="Shards")).to_be_visible()
    assert complaints(page) == []


ALL = "Change the limits of all models together"


@pytest.fixture
def limited(beside: BESIDE) -> Served:
    """A service whose tenants have a limit each by its settings."""
    return beside(admin_key=ADMIN_KEY, api_keys=f"acme:{ACME_KEY}", tenant_limits="max_requests_per_1_minute=600")


def fill_form(page: Page, button: str, *fields: tuple[str, str]) -> Any:
    """Open a form by its button, fill it and send it; the form."""
    page.get_by_role("button", name=button).click()
    form = page.get_by_role("dialog")
    for field, text in fields:
        form.get_by_label(field, exact=True).fill(text)
    form.get_by_role("button", name="Save", exact=True).click()
    return form


def shown(page: Page, text: str) -> list[str]:
    """The limits of a row, as the table has them once no form is open."""
    expect(page.get_by_role("dialog")).to_have_count(0)
    return row(page, "Limits", text).locator("td").all_inner_texts()[:5]


def test_limits_of_a_project_are_changed_and_taken_away(limited: Served, visit: Open) -> None:
    with admin(limited) as client:
        project, _ = with_key(client, "Letters")
        limits = client.admin.organization.projects.rate_limits
        page = entered(visit, limited, f"#/projects/{project}")
        expect(row(page, "Limits", "all models together").locator("td").first).to_have_text("600")
        fill_form(page, ALL, ("Tokens a month", "200000"), ("At a time", "8"))
        expect(page.locator("[aria-live=polite]")).to_have_text("The limits are changed.")
        expect(row(page, "Limits", "all models together")).to_contain_text("200,000")
        assert shown(page, "all models together") == ["600", NONE, NONE, "200,000", "8"]
        limits.update_rate_limit(
            "rl-all", project_id=project, extra_body={"max_parallel_responses": 3}
        )  # somebody else
        fill_form(page, ALL, ("Requests a minute", "50"))
        expect(row(page, "Limits", "all models together")).to_contain_text("50")
        assert shown(page, "all models together") == ["50", NONE, NONE, "200,000", "3"], (
            "what wasn't changed here stays"
        )
        fill_form(page, ALL, ("Tokens a month", ""), ("Requests a minute", ""), ("At a time", ""))
        expect(row(page, "Limits", "all models together").locator("td").nth(4)).to_have_text(NONE)
        assert shown(page, "all models together") == ["600", *[NONE] * 4], "that of the settings"


def test_a_project_gets_another_name_and_weight(limited: Served, visit: Open) -> None:
    with admin(limited) as client:
        project, _ = with_key(client, "Letters")
        page = entered(visit, limited, f"#/projects/{project}")
        expect(page.get_by_text("weight")).to_have_count(0)
        fill_form(page, "Change…", ("Name", "Post"), ("Weight", "2.5"))
        expect(page.get_by_role("heading", level=1, name="Post")).to_be_visible()
        expect(page.get_by_text("weight 2.5")).to_be_visible()
        form = fill_form(page, "Change…", ("Name", "a\u202eb"))
        expect(form.get_by_role("alert")).to_contain_text("can be printed")
        untouched(page)
        page.keyboard.press("Escape")
        fill_form(page, "Change…", ("Weight", ""))
        expect(page.get_by_text("weight 2.5")).to_have_count(0)
        told = client.admin.organization.projects.retrieve(project).to_dict()
        assert (told["name"], told["weight"]) == ("Post", None)
