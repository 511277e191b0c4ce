"""The service's document as other programs read it: one finds it valid, another makes requests of it.

The clients that are made of it are among those of test_clients.py.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.web.routes.welcome import OPENAPI
from tests.support.clients.clients import PYTHON

SNAKE = re.compile("(?=[A-Z])")
"""Where Python has a low line in a name."""

pytestmark = pytest.mark.clients


def test_the_document_is_valid() -> None:
    subprocess.run([PYTHON, "-m", "openapi_spec_validator", OPENAPI], check=True)


def test_clients_that_are_made_of_it_call_every_operation() -> None:
    folder = Path(__file__).parent
    python = (folder / "with_openapi_python_client.py").read_text()
    node = (folder / "with_openapi_fetch.mjs").read_text()
    paths: dict[str, Any] = json.loads(OPENAPI.read_text())["paths"]
    for path, on in paths.items():
        for verb, operation in on.items():
            assert f"{verb.upper()}('{path}'" in re.sub(r"\(\n\s*", "(", node)
            assert f".{SNAKE.sub('_', operation['operationId']).lower()}" in python
