"""The outcomes of a turn's calls over HTTP, which clients see only where they asked for them."""

from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec

from service.features.catalogue.excerpts import excerpt_of
from service.features.python.feature import run_in
from service.process import Settings
from tests.support.responses.samples import harmony
from tests.support.sandbox.sandboxes import bare
from tests.support.service.background import changed
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, ServiceProcess

UNKNOWN = "resp_" + "0" * 46 + "aa"
PYTHON: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
SEARCH: Any = {"type": "web_search"}


def called(text: str) -> list[int]:
    """A call as the model writes it."""
    return harmony(f"<|channel|>analysis to={text}<|call|>")


async def outcomes(inside: Inside, id: str) -> list[dict[str, Any]]:
    async with inside.http() as http:
        found = (await http.get(f"/console/api/turns/{id}/outcomes")).json()
    assert (found["object"], found["id"]) == ("console.turn.outcomes", id)
    return found["data"]


async def test_the_output_of_code_and_the_sources_of_a_search_are_told_though_nobody_asked_to_include_them(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "moon.md").write_text("# The moon\n\nIt makes high water. [Tides](https://other.invalid/)")
    found = changed(settings, search="folder", search_dir=str(tmp_path))
    code, searched = (
        called("python code<|message|>print(6 * 7)"),
        called('browser.search code<|message|>{"query":"moon"}'),
    )
    opened = called('browser.open code<|message|>{"id":0}')
    engine = scripted([code], [searched], [opened], [answer("It is 42.")])
    with bare() as sandbox:
        async with serving(found, engine, compose=partial(run_in, sandbox)) as inside, inside.client() as client:
            made = await client.responses.create(model=MODEL, input="6 * 7?", tools=[PYTHON, SEARCH])
            ran, search, page = await outcomes(inside, made.id)
    calls = [item.to_dict() for item in made.output if item.type.endswith("_call")]
    assert calls[0].get("outputs") is None
    assert "sources" not in calls[1]["action"]
    assert [each["id"] for each in (ran, search, page)] == [call["id"] for call in calls]
    assert (ran["text"], ran["sources"]) == ("42\n", [])
    assert "The moon" in search["text"]
    assert [url.rpartition("/")[2] for url in search["sources"]] == ["moon.md"]
    assert "It makes high water." in page["text"]
    assert page["sources"] == [], "the links of a page are no sources"


def test_outcomes_are_told_to_their_own_project_alone(tenants: ServiceProcess) -> None:
    made = tenants.client(ACME_KEY).responses.create(model=MODEL, input="My name is Ada.")
    path = "/console/api/turns/{}/outcomes"
    assert tenants.http(ACME_KEY).get(path.format(made.id)).json()["data"] == []
    foreign, unknown = (tenants.http(GLOBEX_KEY).get(path.format(id)) for id in (made.id, UNKNOWN))
    assert (foreign.status_code, unknown.status_code) == (404, 404)
    assert foreign.text.replace(made.id, UNKNOWN) == unknown.text
    assert httpx.get(tenants.url + path.format(made.id)).status_code == 401


def test_a_list_shows_that_a_call_waits_for_its_approval() -> None:
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "add", "arguments": "{}"}
    assert excerpt_of(msgspec.json.encode({"output": [request]}), b"[]").output == "Asks to approve add({})"
