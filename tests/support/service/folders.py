"""Tests of commands have to themselves: a folder to run in, with their data, and a part of a store that runs."""

import uuid
from pathlib import Path

import pytest


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARMONIUM_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def own_store(own_folder: None, monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    monkeypatch.setenv("HARMONIUM_REDIS_URL", redis_url)
    monkeypatch.setenv("HARMONIUM_REDIS_PREFIX", f"test-{uuid.uuid4().hex}")
