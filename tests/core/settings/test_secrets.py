"""Secrets in files: one rule for all of them, and what is refused with which words."""

from pathlib import Path

import pytest

from service.process import Settings, load_settings
from service.settings import sources
from service.settings.group import display
from service.settings.sources import SettingsError, file_variable, in_files, variable

SECRETS = tuple(in_files(Settings))

KEY = "sk-0123456789abcdef0123"
VALUES = {
    "api_keys": f"acme:{KEY}",
    "engine_api_key": KEY,
    "redis_url": f"redis://:{KEY}@localhost:6379/0",
    "seal_keys": KEY * 2,
    "webhook_secret": "whsec_" + "QUJD" * 10,
    "metrics_key": KEY,
    "sandbox_key": KEY,
    "search_key": KEY,
    "admin_key": KEY,
    "traces_headers": f"x-key={KEY}",
}


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "secret") -> Path:
    path = Path.cwd() / name
    path.write_text(text)
    return path


def test_every_setting_that_holds_a_secret_may_be_in_a_file() -> None:
    secret = {name for name, field in Settings.model_fields.items() if "Secret" in str(field.annotation)}
    secret |= {name for name, field in Settings.model_fields.items() if "ApiKey" in str(field.annotation)}
    assert secret | {"redis_url"} == set(SECRETS) <= VALUES.keys()


@pytest.mark.parametrize("name", SECRETS)
def test_a_file_has_what_the_variable_would_have(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable(name), VALUES[name])
    expected = getattr(load_settings(), name)
    monkeypatch.delenv(variable(name))
    monkeypatch.setenv(file_variable(name), str(written(VALUES[name] + "\r\n")))
    settings = load_settings()
    assert getattr(settings, name) == expected
    assert KEY not in str(display(settings))
    assert settings.rereads == in_files(Settings)[name].renewed


def test_several_keys_stand_on_lines_or_between_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARMONIUM_API_KEYS_FILE", str(written(f"\nacme:{KEY},initech:{KEY}2\r\nglobex:{KEY}1")))
    assert load_settings().tenants == {"acme", "globex", "initech"}


def test_a_secret_that_is_given_twice_is_refused_with_both_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        written(f"{variable(name)}={VALUES[name]}\n", ".env")
        with monkeypatch.context() as patch:
            patch.setenv(file_variable(name), str(written(VALUES[name])))
            with pytest.raises(SettingsError, match=f"{variable(name)} and {file_variable(name)} are both given"):
                load_settings()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "can't be read: No such file or directory; name a file that this user may read"),
        ("folder", "is not a file; mount the secret as one, or name the file in it"),
        (b"\n\n", "is empty; write the secret into it, or leave the variable out"),
        (b"\xff\xfe", "is no text in UTF-8; write the secret as text"),
        (b"k" * 1001, "has more than 1,000 bytes, so it is no secret; name the right file"),
        (b"one\ntwo", "has 2 lines; write the secret on one"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_variable_and_the_reason(
    content: bytes | str | None, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sources, "MAX_SECRET_BYTES", 1000)
    path = tmp_path / "secret"
    if content == "folder":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    monkeypatch.setenv("HARMONIUM_METRICS_KEY_FILE", str(path))
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert str(caught.value) == f"HARMONIUM_METRICS_KEY_FILE={path} {reason}"


def test_what_is_read_again_is_the_keys_alone_and_all_else_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    keys, url = written(f"acme:{KEY}", "keys"), written("redis://first", "url")
    monkeypatch.setenv("HARMONIUM_API_KEYS_FILE", str(keys))
    monkeypatch.setenv("HARMONIUM_REDIS_URL_FILE", str(url))
    monkeypatch.setenv("HARMONIUM_SHUTDOWN_SECONDS", "7")
    settings = load_settings(port=5)
    keys.write_text(f"acme:{KEY}\nglobex:{KEY}2\n")
    url.write_text("redis://second")
    again = settings.reread()
    assert again.tenants == {"acme", "globex"}
    assert again.rereads
    assert again == settings.model_copy(update={"api_keys": again.api_keys})
    keys.write_text(f"acme:{KEY}\n")
    assert again.reread() == settings


def test_keys_that_are_wrong_or_leave_a_tenant_out_that_has_priority_are_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = written(f"acme:{KEY}")
    monkeypatch.setenv("HARMONIUM_API_KEYS_FILE", str(path))
    monkeypatch.setenv("HARMONIUM_PRIORITY_TENANTS", "acme")
    settings = load_settings()
    for text, name in (("acme:", "API_KEYS_FILE"), (f"globex:{KEY}", "PRIORITY_TENANTS")):
        path.write_text(text)
        with pytest.raises(SettingsError, match=f"HARMONIUM_{name}"):
            settings.reread()
