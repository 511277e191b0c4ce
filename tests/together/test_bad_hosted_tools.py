"""Bad input about tools that the service runs, approvals, containers and files: each is refused in the envelope, names
what is wrong, and stores nothing.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.core.web.test_bad_input import check_refused_in_full
from tests.support.bad.hosted_tools import ASKING, HOSTED, HOSTED_TABLES
from tests.support.bad.table import Bad
from tests.support.sandbox.sandboxes import SandboxProcess, folder_for_all
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.tools.server import mcp_server

Known = dict[str, str]


@pytest.fixture(scope="module")
def hosting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, Known]]:
    """A service that runs every tool, and what is there."""
    folder = tmp_path_factory.mktemp("hosting")
    documents = folder / "documents"
    documents.mkdir()
    with folder_for_all() as shared, mcp_server(folder / "mcp") as mcp:
        sandbox = SandboxProcess(folder / "sandbox", shared)
        searched = {"search": "folder", "search_dir": documents}
        service = ServiceProcess(folder / "service", sandbox=sandbox.listen, mcp_allow=mcp.url, **searched)
        try:
            mcp.let_go()
            yield service, known(service, mcp.url)
        finally:
            service.kill()
            sandbox.kill()


def known(service: ServiceProcess, url: str) -> Known:
    client = service.client()
    kept, gone = (client.containers.create(name=name).id for name in ("kept", "gone"))
    client.containers.delete(gone)
    file = client.containers.files.create(kept, file=("a.txt", b"a")).id
    tools: Any = [ASKING | {"server_url": url}]
    words = "Use the add tool with a 2 and b 40"
    asked, used = (client.responses.create(model=MODEL, input=words, tools=tools) for _ in range(2))
    answer: Any = {"type": "mcp_approval_response", "approval_request_id": used.output[-1].id, "approve": True}
    client.responses.create(model=MODEL, input=[answer], tools=tools, previous_response_id=used.id)
    request = asked.output[-1]
    assert request.type == "mcp_approval_request"
    ids = {"asked": asked.id, "request": request.id, "used": used.id, "spent": used.output[-1].id}
    return {"mcp": url, "container": kept, "gone": gone, "file": file} | {k: str(v) for k, v in ids.items()}


def filled(bad: Bad, known: Known) -> Bad:
    """A request whose words in braces are what is there."""

    def fill(text: str) -> str:
        for name, value in known.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    body: Any = bad.body
    if isinstance(body, dict):
        body = json.loads(fill(json.dumps(body)))
    return replace(bad, body=body, path=fill(bad.path))


def test_a_bad_request_is_refused_by_name(hosting: tuple[ServiceProcess, Known]) -> None:
    service, known = hosting
    check_refused_in_full(service, {name: filled(bad, known) for name, bad in HOSTED.items()})


def test_the_tables_are_long_enough_and_have_no_name_twice() -> None:
    assert len(HOSTED) == sum(map(len, HOSTED_TABLES)) >= 60
