"""Which service, key and model options, variables and the file come to."""

from pathlib import Path

import pytest

from service.commands.arguments import EXIT_USAGE
from service.features.client.errors import ClientError
from service.features.client.profile import (
    DEFAULT_URL,
    KEY,
    MAX_SERVICES,
    PROFILE,
    Profile,
    keep_last,
    last_of,
    read_profile,
)

CONFIG = """
default = "home"

[profiles.home]
url = "http://home:8000/v1/"
key_env = "HOME_KEY"
model = "small"

[profiles.work]
url = "https://work.example.com/ai"
key_file = "{folder}/key"

[profiles.bare]
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The variables of somebody with profiles."""
    (tmp_path / "harmonium").mkdir()
    (tmp_path / "harmonium" / "config.toml").write_text(CONFIG.format(folder=tmp_path))
    (tmp_path / "key").write_text("sk-work\n")
    return {"XDG_CONFIG_HOME": str(tmp_path), "HOME_KEY": "sk-home"}


@pytest.mark.parametrize(
    ("url", "name", "key_env", "variables", "expected"),
    [
        (None, "work", None, {}, Profile("https://work.example.com/ai", "sk-work", None)),
        (None, None, None, {PROFILE: "work"}, Profile("https://work.example.com/ai", "sk-work", None)),
        (None, "bare", None, {KEY: "sk-mine"}, Profile(DEFAULT_URL, "sk-mine", None)),
        (None, "work", "OTHER", {"OTHER": "sk-other"}, Profile("https://work.example.com/ai", "sk-other", None)),
        ("http://here", "home", None, {}, Profile("http://here", "sk-home", "small")),
        ("http://here", None, None, {}, Profile("http://here", None, None)),
    ],
)
def test_an_option_wins_over_a_variable_and_that_over_the_file(
    environment: dict[str, str],
    url: str | None,
    name: str | None,
    key_env: str | None,
    variables: dict[str, str],
    expected: Profile,
) -> None:
    assert read_profile(url, name, key_env, environment | variables) == expected


URLS = ("", "home", "ftp://home", "http://:80", "http://h:99999", "http://u:p@h", "http://h?x=1", "http://h/\n")


def test_a_wrong_url_and_an_option_that_is_empty_are_refused(environment: dict[str, str]) -> None:
    wrong = [(url, None, None) for url in (*URLS, "http://hü", "http://[::1", "http://a..b")]
    for url, name, key_env in [*wrong, (None, "", None), (None, "home", "")]:
        with pytest.raises(ClientError) as raised:
            read_profile(url, name, key_env, environment)
        assert raised.value.exit_status == EXIT_USAGE, url


def test_a_key_that_can_be_none_is_refused_without_being_shown(environment: dict[str, str]) -> None:
    for key in ("a b", "sk-ü", "x" * 513, "a\nb"):
        with pytest.raises(ClientError) as raised:
            read_profile("http://here", None, None, environment | {KEY: key})
        assert key not in str(raised.value)
    assert "sk-secret" not in repr(Profile("http://here", "sk-secret", None))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[profiles.home]\nkey = 'sk-secret'", "unknown field"),
        ("default = 'nobody'", "no [profiles.nobody]"),
        ("# " + "x" * 70_000, "more than"),
        ("x = " + "[" * 5_000, "config.toml"),
    ],
)
def test_a_file_that_is_wrong_is_said(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "harmonium").mkdir()
    (tmp_path / "harmonium" / "config.toml").write_text(content)
    with pytest.raises(ClientError) as raised:
        read_profile(None, None, None, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert words in str(raised.value)
    assert "secret" not in str(raised.value)


def test_the_last_ids_of_so_many_services_are_known(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    for number in range(MAX_SERVICES + 1):
        keep_last(f"http://{number}", f"resp_{number}", environment)
    assert last_of("http://1", environment) == "resp_1"
    with pytest.raises(ClientError, match="knows no response of http://0"):
        last_of("http://0", environment)
