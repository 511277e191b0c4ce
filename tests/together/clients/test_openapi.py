"""The service's document as other programs read it: one finds it valid, another makes requests of it.

The clients that are made of it are among those of test_clients.py.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from service.features.proxy.passed import Endpoint
from service.web.routes.welcome import OPENAPI
from tests.support.clients.clients import PYTHON, environment
from tests.support.service.process import MODEL

BEYOND_SCHEMAS = "positive_data_acceptance"
"""What no schema can say is refused: a tool that isn't declared, a grammar that can't be enforced."""

ALSO_AN_ID = "allow_header_conformance"
"""`/v1/responses/compact` may be that of a response, too, so `Allow` has the methods of both."""

FORGIVEN = "negative_data_rejection"
"""A history is never refused, so the schemas don't say what such a service refuses: a strict one holds them."""

SHORT = ("--phases", "fuzzing,stateful", "--max-examples", "3", "--generation-deterministic")
LONG = ("--max-examples", "60", "--continue-on-failure")

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
            assert re.search(rf"""[."]{SNAKE.sub("_", operation["operationId"]).lower()}\b""", python)


@pytest.mark.parametrize("options", [SHORT, pytest.param(LONG, marks=[pytest.mark.full, pytest.mark.timeout(1800)])])
@pytest.mark.parametrize(("service", "checks_left_out"), [("strict_url", ()), ("url", (FORGIVEN,))])
def test_requests_made_of_the_document_are_answered_as_it_says(
    request: pytest.FixtureRequest, tmp_path: Path, service: str, checks_left_out: tuple[str, ...], options: list[str]
) -> None:
    """Right ones and wrong ones: none is a 500, wrong ones are refused, and answers fit their schemas."""
    url: str = request.getfixturevalue(service)
    served = tmp_path / "openapi.json"
    served.write_text(json.dumps(_of_this_service()))
    run = subprocess.run(
        [
            *(PYTHON.parent / "schemathesis", "run", served, "--url", url, "--no-color", "--warnings", "off"),
            *("--exclude-checks", ",".join((BEYOND_SCHEMAS, ALSO_AN_ID, *checks_left_out)), *options),
        ],
        env=environment(url, tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    tested = re.search(r"(\d+) generated, (\d+) passed", run.stdout)
    assert tested, run.stdout
    assert tested[1] == tested[2]
    assert int(tested[1]) > 50


def _of_this_service() -> dict[str, Any]:
    """The document, with the one model that is served: others are a 404 before anything else is looked at. The demo
    engine has no server for what is passed on, so there are no such paths.
    """
    document: dict[str, Any] = json.loads(OPENAPI.read_text())
    for endpoint in Endpoint:
        del document["paths"][endpoint]
    schemas, counts = document["components"]["schemas"], document["paths"]["/v1/responses/input_tokens"]["post"]
    for name in ("CreateResponse", "CompactConversation"):
        body = schemas[name]
        body["properties"]["model"] = {"const": MODEL}
        body["required"] = ["model", "input"]
    schemas["Counted"] = schemas["CreateResponse"] | {"required": ["input"]}  # tokens are counted of no model
    counts["requestBody"]["content"]["application/json"]["schema"] = {"$ref": "#/components/schemas/Counted"}
    return document
