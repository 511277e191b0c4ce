"""A process whose settings name an engine that the installation lacks doesn't start, and says which one it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service import process
from service.engine.port import EngineUnavailable
from service.process import check_engines, load_settings
from tests.support import ROOT

WITHOUT_FEATURES = """
from service import process
process.features.cache_clear()
process.FEATURES = {}
process.present.cache_clear()
from service.__main__ import main

if __name__ == "__main__":
    main()
"""

LISTED = """
[[engines]]
name = "qwen"
kind = "vllm"
markup = "server"
"""


@pytest.mark.parametrize(
    "arguments", [("serve", "--port", "0"), ("serve", "--port", "0", "--workers", "2"), ("worker",)]
)
def test_a_process_without_its_engine_ends_with_one_line(
    arguments: tuple[str, ...], tmp_path: Path, redis_url: str
) -> None:
    script = tmp_path / "without_features.py"
    script.write_text(WITHOUT_FEATURES)
    ran = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "HARMONIUM_REDIS_URL": redis_url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr.splitlines()) == (
        1,
        ["harmonium: this installation has no engine 'demo'; HARMONIUM_ENGINE and HARMONIUM_ENGINES name engines"],
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
