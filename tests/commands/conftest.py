"""A folder of its own for a test of commands: where they run, and where their data is."""

from pathlib import Path

import pytest


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARMONIUM_DATA_DIR", str(tmp_path / "data"))
