"""Settings: where they come from, what is refused and with which words, and what is never shown."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from service.settings.core import ApiKey, is_loopback, parse_api_keys
from service.settings.settings import Settings, SettingsError, description, display, load_settings, variable

SECRET = "sk-very-secret"
SEAL_KEY = f"{SECRET}-{'0' * 32}"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)
    monkeypatch.chdir(tmp_path)


def test_the_defaults_serve_this_machine_alone_and_need_nothing() -> None:
    settings = load_settings()
    assert (settings.host, settings.port, settings.engine, settings.redis_url) == (
        "127.0.0.1",
        8000,
        "demo",
        "",
    )


def test_an_override_wins_over_the_environment_which_wins_over_the_env_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("HARMONIUM_PORT=1\nHARMONIUM_WORKERS=2\nHARMONIUM_MODEL=m\nOTHER=x\n")
    monkeypatch.setenv("HARMONIUM_PORT", "3")
    monkeypatch.setenv("HARMONIUM_WORKERS", "4")
    settings = load_settings(port=5, host=None)
    assert (settings.port, settings.workers, settings.model) == (5, 4, "m")


def test_settings_can_not_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings().port = 1  # type: ignore[misc]


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name in Settings.model_fields if not description(name)] == []


@pytest.mark.parametrize("place", ["environment", "file"])
def test_an_unknown_variable_is_refused_and_the_nearest_one_named(
    place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if place == "environment":
        monkeypatch.setenv("HARMONIUM_MAX_BODY_BITES", "1")
    else:
        (tmp_path / ".env").write_text("HARMONIUM_MAX_BODY_BITES=1\n")
    with pytest.raises(SettingsError, match="BITES is not a setting; did you mean HARMONIUM_MAX_BODY_BYTES"):
        load_settings()


def test_all_that_is_wrong_is_said_in_one_line() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(port=70_000, workers="many")
    message = str(caught.value)
    assert "HARMONIUM_PORT: " in message
    assert "HARMONIUM_WORKERS: " in message
    assert "\n" not in message


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_key(host: str) -> None:
    assert load_settings(host=host).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_a_host_that_others_can_reach_needs_a_key(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(SettingsError, match="set HARMONIUM_API_KEYS"):
        load_settings(host=host)
    assert load_settings(host=host, api_keys=SECRET).host == host


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"context_tokens": 1023}, "HARMONIUM_CONTEXT_TOKENS: should be 0, or at least 1024"),
        ({"vllm_url": "10.0.0.5:8000"}, "HARMONIUM_VLLM_URL: should be URLs that begin with http://"),
        ({"vllm_url": f"http://me:{SECRET}@10.0.0.5"}, "a key goes into HARMONIUM_VLLM_API_KEY"),
        ({"vllm_url": "http://a,http://a/"}, "names a server twice"),
        ({"api_keys": "a:k,b:l", "priority_tenants": "b, c"}, "PRIORITY_TENANTS names c, of which"),
        ({"vllm_url": ""}, "HARMONIUM_VLLM_URL"),
        ({"vllm_api_key": f"{SECRET}\n"}, "HARMONIUM_VLLM_API_KEY: should be 1 to 512 printable"),
        ({"vllm_args": "max_model_len=4096"}, "HARMONIUM_VLLM_ARGS: should be a JSON object"),
        ({"engine": "vllm-local", "workers": 2}, "would load the model 2 times"),
        ({"shutdown_seconds": 0}, "HARMONIUM_SHUTDOWN_SECONDS"),
        ({"redis_url": "localhost:6379"}, "redis://"),
        ({"redis_url": f"redis://:{SECRET}/x@localhost:6379"}, "%2F"),
        ({"redis_url": "redis://[bad"}, "not a URL"),
        ({"redis_url": "redis://h/notanumber"}, "HARMONIUM_REDIS_URL: should end with the number of a database"),
        ({"redis_url": "redis+sentinel://h:26379"}, "name the service that the Sentinels watch"),
        ({"redis_url": "redis+cluster://h:6379/1"}, "a cluster has only one"),
        ({"shards": 257}, "HARMONIUM_SHARDS"),
        ({"max_bytes": 100 << 20}, "HARMONIUM_MAX_BYTES=104857600 has no room for 4 conversations"),
        ({"max_followers": 2561}, "HARMONIUM_MAX_SOCKETS=1024 are more together than the 4,096 connections"),
        ({"lease_seconds": 5}, "LEASE_SECONDS=5 is too short for HARMONIUM_STORE_TIMEOUT_SECONDS=2: .* 5.25 s"),
        ({"lease_seconds": 8, "store_timeout_seconds": 3}, "more than 2.67 times the timeout"),
        ({"conversation_idle_days": 29}, "HARMONIUM_CONVERSATION_IDLE_DAYS=29 is less than HARMONIUM_IDLE_DAYS=30"),
        (
            {"conversation_idle_days": 29, "idle_days": 0},
            "HARMONIUM_CONVERSATION_IDLE_DAYS=29 is less than HARMONIUM_IDLE_DAYS=0",
        ),
        ({"idle_days": 0.005}, "HARMONIUM_IDLE_DAYS=0.005 is 432 s, and one response may take 780 s"),
        ({"engine": "steam"}, "HARMONIUM_ENGINE"),
        ({"seal_keys": f"{SEAL_KEY},{SECRET}"}, "HARMONIUM_SEAL_KEYS: entry 2: should be 32 to 512 printable"),
        ({"seal_keys": f"{SEAL_KEY},{SEAL_KEY}"}, "HARMONIUM_SEAL_KEYS: entry 2: this key is listed twice"),
        ({"seal_keys": ",".join(f"{SEAL_KEY}{each}" for each in range(17))}, "HARMONIUM_SEAL_KEYS"),
        ({"prompts_dir": "/nowhere"}, "HARMONIUM_PROMPTS_DIR: should be a folder that exists"),
        ({"images": "look"}, "HARMONIUM_IMAGES"),
        ({"key_prefix": "a{b}"}, "HARMONIUM_KEY_PREFIX"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_the_reason(wrong: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        load_settings(**wrong)
    assert SEAL_KEY not in str(caught.value)


def test_a_key_belongs_to_the_tenant_before_the_colon_or_to_the_default_one() -> None:
    keys = [(tenant, key.get_secret_value()) for tenant, key in parse_api_keys(" one, acme:two:three ,")]
    assert keys == [("default", "one"), ("acme", "two:three")]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (f"a b:{SECRET}", "entry 1: a tenant's name"),
        (f"ok,{SECRET} x", "entry 2: a key should be"),
        (f"acme:{SECRET},{SECRET}", "entry 2: this key is listed twice"),
        (f"{SECRET}:", "entry 1: a key should be"),
    ],
)
def test_a_malformed_key_is_refused_without_being_shown(keys: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        load_settings(api_keys=keys)
    assert SECRET not in str(caught.value)


def test_no_form_of_the_settings_shows_a_secret() -> None:
    settings = load_settings(
        api_keys=f"acme:{SECRET}",
        redis_url=f"redis://me:{SECRET}@host/0?password={SECRET}",
        seal_keys=f"{SEAL_KEY}, new-{SEAL_KEY},",
    )
    shown = display(settings)
    assert SECRET not in f"{settings!r} {settings} {shown}"
    assert shown["api_keys"] == "acme:****"
    assert shown["redis_url"] == "redis://me:****@host/0?password=****"
    assert shown["seal_keys"] == "****,****"
    assert isinstance(settings.api_keys[0], ApiKey)
    assert [key.get_secret_value() for key in settings.seal_keys] == [SEAL_KEY, f"new-{SEAL_KEY}"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"rediss+cluster://me:{SECRET}@h1:1,h2:2?x=y", "rediss+cluster://me:****@h1:1,h2:2?x=y"),
        (
            f"redis+sentinel://:{SECRET}@h/s?sentinel_password={SECRET}",
            "redis+sentinel://:****@h/s?sentinel_password=****",
        ),
        (f"rediss://h?ssl_password={SECRET}&db=1", "rediss://h?ssl_password=****&db=1"),
        (f"unix://me:{SECRET}@/run/s.sock?db=1", "unix://me:****@/run/s.sock?db=1"),
    ],
)
def test_no_form_of_a_url_shows_a_password(url: str, shown: str) -> None:
    assert display(load_settings(redis_url=url))["redis_url"] == shown


def test_data_is_kept_where_the_desktop_says_data_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert load_settings().data_dir == tmp_path / "harmonium"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert load_settings().data_dir == Path.home() / ".local/share/harmonium"
    assert load_settings(data_dir="here").data_dir == Path.cwd() / "here"
