"""Responses that search files by an operator's MCP server: what its tool is given, what the client gets, what the model
reads, what is refused.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import openai
import pytest

from service.api.tools.offer import Routed
from service.features.mcp.settings import BadServers, read_servers
from service.harmony import tokens
from service.process import Settings
from tests.support.documents import blocks, read, section
from tests.support.service.inside import answer, called, scripted, serving, then, thought
from tests.support.service.seen import asking, prompts
from tests.support.tools import library
from tests.support.tools.library import MOON, TIDES
from tests.support.tools.server import McpServer, mcp_server

STORES = ["vs_1", "vs_2"]
FILES: dict[str, Any] = {"type": "file_search", "vector_store_ids": STORES}
INCLUDE: Any = ["file_search_call.results"]
SHOWN = [TIDES, MOON | {"attributes": {}}]
ask = asking(input="When?", tools=[FILES])


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="session")
def shelf(folder: Path) -> Iterator[McpServer]:
    with mcp_server(folder, "tests.support.tools.library") as server:
        yield server


def standing(settings: Settings, folder: Path, url: str, tool: str = "search", more: str = "") -> Settings:
    """Settings under which a server stands for searches of files; their file is in a folder."""
    path = folder / "mcp.toml"
    path.write_text(f'[library]\nurl = "{url}"\ntype = "file_search"\ntool = "{tool}"\n{more}')
    return settings.model_copy(update={"mcp_servers": str(path)})


@pytest.fixture
def searching(settings: Settings, shelf: McpServer, tmp_path: Path) -> Settings:
    return standing(settings, tmp_path, shelf.url)


def call(*queries: str, arguments: str = "") -> list[int]:
    """A whole call of the search."""
    said = arguments or json.dumps({"queries": queries})
    head = tokens.encode(" to=functions.msearch")
    return [*tokens.encode(" to=file_search.msearch"), *called("msearch", said)[len(head) :]]


async def test_files_are_searched_and_the_model_reads_what_was_found(searching: Settings, folder: Path) -> None:
    engine = scripted([[*thought("I search."), *then(call("high water", "tides"))]], [answer("At ten.")])
    async with serving(searching, engine) as service, service.client() as client:
        response = await ask(client, include=INCLUDE)

    _, search, message = response.output
    assert search.type == "file_search_call"
    assert (search.status, search.queries) == ("completed", ["high water", "tides"])
    assert search.to_dict()["results"] == SHOWN
    assert (message.type, response.output_text) == ("message", "At ten.")
    assert response.tools[0].to_dict() == FILES
    assert library.given(folder)[-1] == {
        "queries": ["high water", "tides"],
        "vector_store_ids": STORES,
        "filters": None,
        "max_num_results": None,
        "ranking_options": None,
    }
    first, *_, last = prompts(engine)
    assert "namespace file_search {" in first
    assert "// Searches the library's tables." in first
    assert "vs_1" not in first
    assert "<|start|>file_search.msearch to=assistant<|channel|>commentary<|message|>[{" in last
    assert "High water is at ten." in last


async def test_the_terms_of_a_search_go_to_the_server_and_not_to_the_model(searching: Settings, folder: Path) -> None:
    filters = {"type": "and", "filters": [{"type": "eq", "key": "year", "value": 2026}]}
    filters["filters"].append({"type": "in", "key": "kind", "value": ["table", "chart"]})  # type: ignore[attr-defined]
    ranking = {"ranker": "auto", "score_threshold": 0.5}
    tool = FILES | {"filters": filters, "max_num_results": 3, "ranking_options": ranking}
    engine = scripted([call("many")], [answer("Done.")])
    async with serving(searching, engine) as service, service.client() as client:
        response = await ask(client, tools=[tool], include=INCLUDE)

    assert library.given(folder)[-1] == {
        "queries": ["many"],
        "vector_store_ids": STORES,
        "filters": filters,
        "max_num_results": 3,
        "ranking_options": ranking,
    }
    assert len(response.output[0].to_dict()["results"]) == 3


async def test_what_is_found_has_its_bounds(searching: Settings) -> None:
    engine = scripted([call("many")], [call("long")], [call("nothing")], [answer("Done.")])
    async with serving(searching, engine) as service, service.client() as client:
        response = await ask(client, include=INCLUDE)

    many, long, nothing = (item.to_dict() for item in response.output[:3])
    assert len(many["results"]) == 50
    assert [len(each["text"]) for each in long["results"]] == [20_000, 12_000]
    assert (nothing["status"], nothing["results"]) == ("completed", [])


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("fail", "Error: Error executing tool search"),
        ("no list", "is not a list of results: Object missing required field `results`"),
        ("no name", "is not a list of results: Object missing required field `filename` - at `$.results[1]`"),
    ],
)
async def test_a_search_that_fails_is_shown_as_failed_and_told(
    searching: Settings, query: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = scripted([call(query)], [answer("It failed.")])
    async with serving(searching, engine) as service, service.client() as client:
        response = await ask(client, include=INCLUDE)

    search = response.output[0].to_dict()
    assert (search["status"], search["queries"], search["results"]) == ("failed", [query], None)
    assert response.status == "completed"
    assert told in prompts(engine)[-1]
    logged = [record.getMessage() for record in caplog.records if record.name.endswith("file_search.tool")]
    assert logged == ["a search of files failed"]
    assert "index is being built" not in caplog.text


async def test_a_text_with_the_results_will_do_and_what_a_tool_does_not_take_is_refused(
    settings: Settings, shelf: McpServer, tmp_path: Path
) -> None:
    engine = scripted([call("tides")], [answer("At ten.")])
    async with serving(standing(settings, tmp_path, shelf.url, "plain"), engine) as service, service.client() as client:
        response = await ask(client, include=INCLUDE)
        with pytest.raises(openai.BadRequestError, match="doesn't support") as refused:
            await ask(client, tools=[FILES | {"max_num_results": 3}])

    assert response.output[0].to_dict()["results"] == SHOWN
    assert (refused.value.param, refused.value.code) == ("tools[0].max_num_results", "unsupported_parameter")


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("look", "Its tool 'look' does not take 'queries'"),
        ("gone", "It has no tool 'gone', which should provide file_search."),
    ],
)
async def test_a_server_that_can_not_stand_for_it_is_a_424_that_says_why(
    settings: Settings, shelf: McpServer, tmp_path: Path, tool: str, why: str
) -> None:
    async with (
        serving(standing(settings, tmp_path, shelf.url, tool), scripted([answer("So.")])) as service,
        service.client() as client,
    ):
        with pytest.raises(openai.APIStatusError) as refused:
            await ask(client)

    assert refused.value.status_code == 424
    assert "'library'" in refused.value.message
    assert why in refused.value.message


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"vector_store_ids": []}, "tools[0].vector_store_ids"),
        ({"vector_store_ids": None}, "tools[0].vector_store_ids"),
        ({"vector_store_ids": ["x"] * 33}, "tools[0].vector_store_ids"),
        ({"max_num_results": 0}, "tools[0].max_num_results"),
        ({"max_num_results": 51}, "tools[0].max_num_results"),
        ({"filters": {"type": "near", "key": "a", "value": 1}}, "tools[0].filters.type"),
        ({"filters": {"type": "eq", "key": "a"}}, "tools[0].filters.type"),
        ({"filters": {"type": "eq", "key": "a", "value": [1]}}, "tools[0].filters.value"),
        ({"filters": {"type": "in", "key": "a", "value": 1}}, "tools[0].filters.value"),
        (
            {"filters": {"type": "or", "filters": [{"type": "and", "key": "a", "value": 1}]}},
            "tools[0].filters.filters[0].type",
        ),
        ({"filters": {"type": "or", "filters": [{"type": "eq", "key": "a", "value": 1}] * 64}}, "tools[0].filters"),
        ({"ranking_options": {"score_threshold": 2}}, "tools[0].ranking_options.score_threshold"),
        ({"wibble": 1}, "tools[0].wibble"),
    ],
)
async def test_a_declaration_that_is_wrong_is_refused(searching: Settings, members: dict[str, Any], param: str) -> None:
    async with serving(searching, scripted([answer("So.")])) as service, service.client() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(client, tools=[FILES | members])  # type: ignore[list-item]

    assert refused.value.param == param


async def test_a_client_that_keeps_its_conversation_sends_the_call_back(searching: Settings) -> None:
    engine = scripted([call("tides")], [answer("At ten.")], [answer("Still at ten.")])
    async with serving(searching, engine) as service, service.client() as client:
        first = await ask(client, include=INCLUDE, store=False)
        history: Any = [{"role": "user", "content": "When?"}, *(item.to_dict() for item in first.output)]
        await ask(client, input=[*history, {"role": "user", "content": "Sure?"}], store=False)

    last = prompts(engine)[-1]
    assert 'to=file_search.msearch<|channel|>commentary <|constrain|>json<|message|>{"queries":["tides"]}' in last
    assert "<|start|>file_search.msearch to=assistant<|channel|>commentary<|message|>[{" in last


def library_in_the_document() -> str:
    """The example of a server that docs/tools.md has."""
    return next(each.text for each in blocks(section(read("docs/tools.md"), "file_search")) if each.label == "python")


async def test_the_server_of_the_document_searches_folders(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(library_in_the_document())
    for store, text in (("handbook", "High water is at ten.\n\nLunch is at noon."), ("secret", "High water is a lie.")):
        (tmp_path / "documents" / store).mkdir(parents=True)
        (tmp_path / "documents" / store / "tides.md").write_text(text)
    command = json.dumps([sys.executable, str(tmp_path / "library.py"), str(tmp_path / "documents")])
    path = tmp_path / "mcp.toml"
    path.write_text(f'[library]\ncommand = {command}\ntype = "file_search"\ntool = "search"\n')
    tool: Any = FILES | {"vector_store_ids": ["handbook", "../secret"], "max_num_results": 1}
    engine = scripted([call("high water")], [answer("At ten.")])
    named = settings.model_copy(update={"mcp_servers": str(path)})
    async with serving(named, engine) as service, service.client() as client:
        response = await ask(client, tools=[tool], include=INCLUDE)

    (result,) = response.output[0].to_dict()["results"]
    assert (result["file_id"], result["filename"]) == ("tides", "tides.md")
    assert (result["text"], result["score"], result["attributes"]) == ("High water is at ten.", 1.0, {})


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('type = "web_search"\ntool = "a"', "HARMONIUM_SEARCH says what web_search searches"),
        ('type = "code_interpreter"\ntool = "a"', "HARMONIUM_SANDBOX runs code_interpreter"),
        ('type = "image_generation"\ntool = "a"', "a server can provide no other tool"),
        ('type = "file_search"', "tool names the server's tool"),
        ('tool = "a"', "tool is for a server with a type"),
        ('type = "file_search"\ntool = "a"\nallowed_tools = ["a"]', "leave allowed_tools and require_approval out"),
        (
            'type = "file_search"\ntool = "a"\nrequire_approval = "never"',
            "leave allowed_tools and require_approval out",
        ),
        ('type = "file_search"\ntool = ""', "tool"),
    ],
)
def test_a_server_that_stands_for_what_it_can_not_is_refused_at_start(table: str, why: str) -> None:
    with pytest.raises(BadServers, match=why):
        read_servers(f'[library]\nurl = "http://127.0.0.1/mcp"\n{table}\n')


def test_a_search_is_made_again_where_nobody_knows_whether_it_was() -> None:
    shown: Any = SimpleNamespace(name="search")
    callee = Routed("file_search", "library", "search", shown, read=lambda raw, where: "{}").callee("{}")
    assert callee.hosted is not None
    assert callee.hosted.repeatable, "it only reads; tests/core/responses/test_hosted_calls.py has what follows"
