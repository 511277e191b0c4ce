"""What is searched, as settings say it."""

from pathlib import Path

import pytest

from service.settings.settings import Settings, SettingsError, load_settings, variable


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"search": "searxng"}, "searxng needs HARMONIUM_SEARCH_URL"),
        ({"search": "brave"}, "brave needs HARMONIUM_SEARCH_KEY"),
        ({"search": "folder"}, "folder needs HARMONIUM_SEARCH_FOLDER"),
        ({"search": "folder", "search_folder": "nowhere"}, "is no folder"),
        ({"search": "google"}, "searxng"),
        ({"search_url": "ftp://x"}, "http"),
        ({"search_url": "http://user@x"}, "http"),
        ({"search_key": "a b"}, "printable ASCII"),
        ({"search_hosts": "wiki.internal, http://x/"}, "is no host"),
    ],
)
def test_what_can_not_be_searched_is_refused_at_start(given: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        load_settings(**given)


def test_hosts_are_read_as_a_list() -> None:
    assert load_settings(search_hosts="Wiki.internal, wiki.internal:8080,[fd00::1]:80").search_hosts == (
        "wiki.internal",
        "wiki.internal:8080",
        "[fd00::1]:80",
    )


def test_all_is_well_where_all_is_given(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()

    assert load_settings(search="folder", search_folder="documents").search_folder == str(tmp_path / "documents")
    assert load_settings(search="exa", search_key="sk-x").search == "exa"
