"""Changes by an administrator in the console: limits of projects and keys, names and weights."""

from collections.abc import Callable
from typing import Any

import pytest
from openai import RateLimitError
from playwright.sync_api import Page, expect

from tests.console.conftest import Open
from tests.console.test_administration import NONE, entered, row
from tests.console.test_hostile import HOSTILE, untouched
from tests.support.console.administered import ADMIN_KEY, admin, with_key
from tests.support.service.process import ACME_KEY, MODEL, ServiceProcess

pytestmark = pytest.mark.clients

START = Callable[..., ServiceProcess]
ALL = "Change the limits of all models together"


@pytest.fixture
def limited(start: START) -> ServiceProcess:
    """A service whose tenants have a limit each by its settings."""
    return start(admin_key=ADMIN_KEY, api_keys=f"acme:{ACME_KEY}", tenant_limits="max_requests_per_1_minute=600")


def fill(page: Page, button: str, *fields: tuple[str, str]) -> Any:
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


def test_limits_of_a_project_are_changed_and_taken_away(limited: ServiceProcess, visit: Open) -> None:
    with admin(limited) as client:
        project, _ = with_key(client, "Letters")
        limits = client.admin.organization.projects.rate_limits
        page = entered(visit, limited, f"#/projects/{project}")
        expect(row(page, "Limits", "all models together").locator("td").first).to_have_text("600")
        fill(page, ALL, ("Tokens a month", "200000"), ("At a time", "8"))
        expect(page.locator("[aria-live=polite]")).to_have_text("The limits are changed.")
        expect(page.get_by_role("button", name=ALL)).to_be_focused()
        expect(row(page, "Limits", "all models together")).to_contain_text("200,000")
        assert shown(page, "all models together") == ["600", NONE, NONE, "200,000", "8"]
        limits.update_rate_limit(
            "rl-all", project_id=project, extra_body={"max_parallel_responses": 3}
        )  # somebody else
        fill(page, ALL, ("Requests a minute", "50"))
        expect(row(page, "Limits", "all models together")).to_contain_text("50")
        assert shown(page, "all models together") == ["50", NONE, NONE, "200,000", "3"], (
            "what wasn't changed here stays"
        )
        fill(page, ALL, ("Tokens a month", ""))
        expect(row(page, "Limits", "all models together").locator("td").nth(3)).to_have_text(NONE)
        (told,) = limits.list_rate_limits(project).data
        assert told.to_dict()["max_parallel_responses"] == 3
        fill(page, ALL, ("Requests a minute", ""), ("At a time", ""))
        expect(row(page, "Limits", "all models together").locator("td").nth(4)).to_have_text(NONE)
        assert shown(page, "all models together") == ["600", *[NONE] * 4], "that of the settings"
        changes = [each.type for each in client.admin.organization.audit_logs.list(project_ids=[project]).data]
        assert changes.count("rate_limit.updated") == 5


def test_what_is_no_limit_is_refused_and_changes_nothing(limited: ServiceProcess, visit: Open) -> None:
    page = entered(visit, limited, "#/projects/acme")
    page.get_by_role("button", name=ALL).click()
    form = page.get_by_role("dialog")
    change = form.get_by_role("button", name="Save", exact=True)
    expect(form.get_by_label("Requests a minute")).to_be_focused()
    expect(change).to_be_disabled()
    for text, said in (
        ("1.5", "whole number"),
        ("-1", "whole number"),
        ("many", "whole number"),
        (HOSTILE, "whole number"),
        ("1000000001", "0 to 1000000000"),
        ("9" * 30, "expected an integer"),
        ("9" * 400, "whole number"),
    ):
        form.get_by_label("Requests a month").fill(text)
        change.click()
        expect(form.get_by_role("alert")).to_contain_text(said)
        untouched(page)
    form.get_by_role("button", name="Cancel").click()
    assert shown(page, "all models together") == ["600", *[NONE] * 4]


def test_a_project_gets_another_name_and_weight(limited: ServiceProcess, visit: Open) -> None:
    with admin(limited) as client:
        project, _ = with_key(client, "Letters")
        page = entered(visit, limited, f"#/projects/{project}")
        expect(page.get_by_text("weight")).to_have_count(0)
        fill(page, "Change…", ("Name", "Post"), ("Weight", "2.5"))
        expect(page.get_by_role("heading", level=1, name="Post")).to_be_visible()
        expect(page.get_by_text("weight 2.5")).to_be_visible()
        form = fill(page, "Change…", ("Weight", "heavy"))
        expect(form.get_by_role("alert")).to_contain_text("should be a number")
        form.get_by_label("Weight").fill("0")
        form.get_by_role("button", name="Save", exact=True).click()
        expect(form.get_by_role("alert")).to_contain_text("from 0.01 to 1,000")
        form.get_by_label("Name").fill("a\u202eb")
        form.get_by_label("Weight").fill("2.5")
        form.get_by_role("button", name="Save", exact=True).click()
        expect(form.get_by_role("alert")).to_contain_text("can be printed")
        untouched(page)
        page.keyboard.press("Escape")
        fill(page, "Change…", ("Weight", ""))
        expect(page.get_by_text("weight 2.5")).to_have_count(0)
        told = client.admin.organization.projects.retrieve(project).to_dict()
        assert (told["name"], told["weight"]) == ("Post", None)


def test_a_key_is_limited_and_let_go(limited: ServiceProcess, visit: Open) -> None:
    with admin(limited) as client:
        project, value = with_key(client, "Letters")
    page = entered(visit, limited, f"#/projects/{project}")
    fill(page, "Limit the key", ("Requests a minute", "0"))
    expect(page.get_by_role("dialog")).to_have_count(0)

    def asks() -> str:
        return limited.client(value).responses.create(model=MODEL, input="Hi").status or ""

    with pytest.raises(RateLimitError, match="requests per min"):
        asks()
    page.get_by_role("button", name="Limit the key").click()
    expect(page.get_by_label("Requests a minute")).to_have_value("0")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    fill(page, "Limit the key", ("Requests a minute", ""))
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert asks() == "completed"
