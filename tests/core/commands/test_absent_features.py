"""An engine, a setting or a command of a feature that the installation lacks is refused, and the feature named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service import process
from service.engine.port import EngineUnavailable
from service.process import check_engines, load_settings
from tests.support import ROOT

WITHOUT = """
import importlib.util
import sys

away, find_spec = sys.argv.pop(1), importlib.util.find_spec

def find(name, package=None):
    return None if name == away else find_spec(name, package)

importlib.util.find_spec = find
from service.__main__ import main

if __name__ == "__main__":
    main()
"""
"""`harmonium` without the feature that its first argument names."""

LISTED = """
[[engines]]
name = "qwen"
kind = "vllm"
markup = "server"
"""


def refused(folder: Path, feature: str, *arguments: str, **settings: str) -> str:
    """The line on stderr of a command that is refused where a feature is away."""
    script = folder / "without.py"
    script.write_text(WITHOUT)
    ran = subprocess.run(
        [sys.executable, str(script), f"service.features.{feature}", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | {f"HARMONIUM_{name}": value for name, value in settings.items()},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2, ran.stderr
    return ran.stderr


@pytest.mark.parametrize("arguments", [("serve", "--port", "0"), ("worker",)])
def test_a_process_without_its_engine_ends_with_one_line(
    arguments: tuple[str, ...], tmp_path: Path, redis_url: str
) -> None:
    assert refused(tmp_path, "demo", *arguments, REDIS_URL=redis_url).splitlines() == [
        "harmonium: this installation has no engine 'demo', and lacks the feature demo; HARMONIUM_ENGINE and "
        "HARMONIUM_ENGINES name engines"
    ]


@pytest.mark.parametrize(
    ("feature", "setting", "value", "told"),
    [
        ("webhooks", "WEBHOOK_URL", "http://a", "is not a setting"),
        ("tenants", "ADMIN_KEY", "k" * 20, "HARMONIUM_ADMIN_KEY and HARMONIUM_PROJECTS make projects"),
        ("tenants", "PROJECTS", "true", "HARMONIUM_ADMIN_KEY and HARMONIUM_PROJECTS make projects"),
        ("chats", "CHATS", "remember", "HARMONIUM_CHATS=remember remembers chats"),
        ("browser", "PICTURES", "urls=*", "HARMONIUM_PICTURES=urls fetches pictures"),
    ],
)
def test_a_setting_of_a_feature_that_is_away_is_refused(
    feature: str, setting: str, value: str, told: str, tmp_path: Path
) -> None:
    (line,) = refused(tmp_path, feature, "settings", **{setting: value}).splitlines()
    assert told in line
    assert feature in line.partition("this installation lacks the feature")[2]


def test_a_command_of_a_feature_that_is_away_is_refused(tmp_path: Path) -> None:
    assert "No such command 'doctor', and this installation lacks the feature operator" in " ".join(
        refused(tmp_path, "operator", "doctor").replace("│", " ").split()
    )


def test_servers_that_should_read_their_model_are_not_asked_as_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "engines.toml"
    file.write_text(LISTED)
    settings = load_settings(engines=str(file))
    monkeypatch.setattr(process, "features", lambda: ())
    with pytest.raises(EngineUnavailable, match="no engine 'vllm' with markup 'server'"):
        check_engines(settings)
