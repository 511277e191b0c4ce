"""Settings of features: what is refused and with which words, and what is never shown."""

import pytest

from service.process import load_settings
from service.settings.group import display
from service.settings.sources import SettingsError

SECRET = "sk-very-secret"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"webhook_url": "https://example.com/hook"}, "WEBHOOK_URL is set without HARMONIUM_WEBHOOK_SECRET"),
        ({"sandbox_sessions": 2}, "SANDBOX_TENANT_SESSIONS=8 is more than all --sandbox-sessions 2"),
        ({"webhook_url": f"http://me:{SECRET}@example.com/"}, "--webhook-url: should have no user"),
        ({"traces_url": f"http://me:{SECRET}@example.com/"}, "--traces-url: should have no user"),
        ({"archive_url": f"ftp://me:{SECRET}@example.com/"}, "--archive-url: should be none, sqlite"),
        ({"search_url": "ftp://x"}, "--search-url ftp://x: should be an http"),
        ({"search_url": f"http://me:{SECRET}@x/"}, r"--search-url http://\*\*\*\*@x/: should be an http"),
        ({"search_url": f"ftp://x/?api_key={SECRET}"}, r"api_key=\*\*\*\*: should be an http"),
        ({"sandbox": f"http://me:{SECRET}@box:80"}, r"--sandbox http://\*\*\*\*@box:80: should be local"),
        ({"sandbox": f"me:{SECRET}@box:80"}, r"--sandbox \*\*\*\*@box:80: should be local"),
        ({"sandbox_listen": f"http://box:80/?token={SECRET}"}, "should be unix"),
        ({"mcp_allow": f"https://a, https://me:a,{SECRET}@b"}, r"://\*\*\*\*@b: entry 2 is no beginning"),
        ({"archive_url": f"s3://me:{SECRET}@bucket"}, "--archive-url: should be s3://BUCKET/PREFIX"),
        ({"archive_url": f"az://{SECRET}:x"}, "--archive-url: should be az://BUCKET/PREFIX"),
        ({"search": "searxng"}, "searxng needs HARMONIUM_SEARCH_URL"),
        ({"allowed_private_hosts": "wiki.internal, http://x/"}, "is no host"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_the_reason(wrong: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        load_settings(**wrong)
    assert SECRET not in str(caught.value)


def test_no_form_of_the_settings_shows_a_secret() -> None:
    named = {
        "mcp_allow": f"https://a/mcp?token={SECRET},https://b",
        "search_url": f"http://x/?q=1&apikey={SECRET}",
        "archive_url": f"postgresql://me:{SECRET}@db/turns",
    }
    assert SECRET not in f"{display(load_settings(**named))}"
