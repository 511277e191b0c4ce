"""The documents are true: every setting, route, error code, event and benchmark has its entry, every path exists.

What can be compared without a service is compared here; what has to run is in test_examples.py. A failure names
what is missing; put it into the document.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from service.api import events
from service.api.outcome import Outcome
from service.api.tools.callee import Callee, Hosted, HostedKind
from service.app import EXPOSED_HEADERS
from service.harmony.header import Header
from service.process import Settings
from service.responses.output.calls import ShellCallEmitter, ToolSearchCallEmitter
from service.responses.output.hosted import HOSTED, ApprovalRequestEmitter, listing_events
from service.responses.output.open_message import Making, emitter_for
from service.responses.output.rules import Rules, ServerTools
from service.settings.sources import CLIENTS, file_variable, in_files, is_service_link
from store.turn import MOVES
from tests.project.test_architecture import files
from tests.support.documents import (
    DOCUMENTS,
    ROOT,
    anchors,
    block,
    experimental,
    links,
    prose,
    read,
    rows,
    section,
    settings_sections,
    settings_table,
    state_diagram,
    with_experimental,
    with_settings,
)
from tests.support.logged import attributes, log_fields, log_messages

RESPONSE_ID = "resp_" + 48 * "0"
TOOLS = Rules(callees=(Callee("f"), Callee("c", "custom")))
SHOWN = {
    "message": ("final", None, TOOLS),
    "reasoning": ("analysis", None, TOOLS),
    "reasoning_with_summary": ("analysis", None, Rules(summary="auto")),
    "function_call": ("commentary", "functions.f", TOOLS),
    "custom_tool_call": ("commentary", "functions.c", TOOLS),
    "code_interpreter_call": ("analysis", "python", TOOLS),
    "web_search_call": ("analysis", "browser.search", TOOLS),
    "mcp_call": ("commentary", "docs.search", TOOLS),
    "compaction": ("final", None, Rules(compacting=True)),
}
"""The channel, the recipient and the rules that make each kind of item."""

HOSTED_BLOCKS: dict[HostedKind, str] = {
    "mcp": "hosted_mcp_call",
    "python": "hosted_code",
    "browser": "hosted_web_search",
    "file_search": "hosted_file_search",
}
"""The block that has the events of a call, by what runs it."""

# taken apart, so that the rule doesn't find itself
FOREIGN = re.compile(r"\.\./sha" r"red|\bsha" r"red/\w+\.md|cla" r"ude|copi" r"lot", re.IGNORECASE)
PACKAGE = re.compile(r"@[a-z-]+/[a-z-]+\b")
"""The name of a package of npm's."""


STATUSES = {"InvalidRequest": 400, "unavailable": 503, "server_failure": 500}
"""The statuses of errors whose calls needn't name them."""


SERVING = re.compile(r"service/(?!engine/|stability|features/(?:browser|llama)/).*\.py")
"""The sources of the service that have no headers of requests to others."""

HEADER = re.compile(r"\"((?:x|openai|anthropic|request|retry|idempotent|idempotency)-[a-z-]+)\"")
"""A header that HTTP itself doesn't have."""


def raised() -> Iterator[tuple[int | None, str]]:
    """The status, where the call names it, and the code of every error in the source of the service."""
    for path, text in files():
        if re.match(r"service/.*\.py$", path):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    yield from codes_of(node, node.func.id)
                elif isinstance(node, ast.FunctionDef) and node.name in STATUSES:
                    usual = [each.value for each in node.args.kw_defaults if isinstance(each, ast.Constant)]
                    yield from ((STATUSES[node.name], each) for each in usual if isinstance(each, str))


def codes_of(call: ast.Call, name: str) -> Iterator[tuple[int | None, str]]:
    first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    if name == "ResponseError" and isinstance(first, str):
        yield None, first
    given = {each.arg: each.value.value for each in call.keywords if isinstance(each.value, ast.Constant)}
    status = given.get("status", STATUSES.get(name, first if isinstance(first, int) else None))
    for code in (each.value for each in call.keywords if each.arg == "code"):
        for each in (code.body, code.orelse) if isinstance(code, ast.IfExp) else (code,):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield status, each.value


def test_every_setting_has_its_row_as_its_description_says() -> None:
    text = read("docs/configuration.md")
    assert settings_sections() in text, "run: python -m tests.support.documents"
    assert [line for line in text.splitlines() if line.startswith("| `HARMONIUM_")] == settings_table()


def test_writing_the_rows_of_settings_anew_changes_nothing_else() -> None:
    for document in DOCUMENTS:
        assert with_settings(document) == document.read_text(), f"{document}: run: python -m tests.support.documents"
    # the head of a table, which begins like such a row
    assert "| `HARMONIUM_METRICS_KEY` | `HARMONIUM_API_KEYS` |" in read("docs/metrics.md")


def test_whatever_is_experimental_is_in_the_one_table_and_marked_where_it_has_a_row_and_nothing_else_is() -> None:
    text = read("docs/configuration.md")
    assert with_experimental(text) == text, "run: python -m tests.support.documents"
    marked = experimental()
    assert set(marked.values()) == {"setting", "route", "dialect", "metric", "command", "option"}
    assert {"HARMONIUM_MODEL", "POST /v1/responses", "harmonium ask"}.isdisjoint(marked)
    elsewhere = [name.split() for name, kind in marked.items() if kind != "setting"]
    every = [" ".join(row) for name in ("api", "cli", "tenants", "metrics") for row in rows(read(f"docs/{name}.md"))]
    shown = [row for row in every if "experimental" in row]
    for name in elsewhere:
        assert any(all(word in row for word in name) for row in shown), name
    for row in shown:
        assert any(all(word in row for word in name) for name in elsewhere), row


def test_every_setting_that_a_document_names_exists() -> None:
    known = {row.split("`")[1] for row in settings_table()} | {file_variable(name) for name in in_files(Settings)}
    known |= set(CLIENTS)
    for document in DOCUMENTS:
        named = set(re.findall(r"HARMONIUM_[A-Z_]+[A-Z]", document.read_text()))
        assert {name for name in named if not is_service_link(name, None)} <= known, document.name


def test_every_error_code_has_its_row_beside_the_statuses_it_comes_with_and_no_row_is_about_none() -> None:
    table = {(int(row[0]), row[1].strip("`")) for row in rows(read("docs/errors.md")) if row[0].isdigit()}
    assert {code for _, code in table} - {"null"} == {code for _, code in raised()}
    found = {(status, code) for status, code in raised() if status is not None}
    assert len(found) > 10
    assert found <= table


def test_every_header_that_is_no_browser_s_is_in_the_tables() -> None:
    tables = section(read("docs/api.md"), "Headers").lower()
    shown = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)\b", tables.replace("requests", "tokens")))
    shown |= {name.replace("tokens", "requests") for name in shown}
    own = {name for path, text in files() if SERVING.fullmatch(path) for name in HEADER.findall(text)}
    assert {"x-harmonium-after", "x-harmonium-detach", "openai-project"} <= own
    assert own - shown == set()
    assert {name for name in own if name.startswith("x-harmonium-")} - {"x-harmonium-detach"} <= {*EXPOSED_HEADERS}


def test_every_field_of_a_log_line_has_its_row_and_no_other() -> None:
    text = section(read("docs/operating.md"), "The log")
    table = [(row[0].strip("`"), row[1]) for row in rows(text)]
    assert sorted(name for name, _ in table) == sorted(log_fields())
    assert {kind for _, kind in table} == {"string", "integer", "number"}
    kept = re.findall(r"`([^`]+)`", text.split("stay as they are:")[1].split("\n\n")[0])
    assert set(kept) <= log_messages()


def test_every_attribute_of_our_own_has_its_row_and_no_other() -> None:
    table = rows(section(read("docs/metrics.md"), "Traces"))
    assert {row[0].strip("`") for row in table if row[0].startswith("`harmonium.")} == attributes()


def test_every_event_is_in_the_document_and_no_other() -> None:
    tags = {str(kind.__struct_config__.tag) for kind in events.KINDS}
    of_streams, _, _ = read("docs/events.md").partition("## Webhooks")
    named = set(re.findall(r"\bresponse(?:\.[a-z_]+)+", of_streams))
    assert named | {"error"} == tags
    assert f"`{events.Keepalive.__struct_config__.tag}`" in of_streams


@pytest.mark.parametrize("kind", SHOWN)
def test_the_order_of_an_item_s_events_is_the_one_in_the_document(kind: str) -> None:
    channel, recipient, rules = SHOWN[kind]
    header = Header("assistant", channel, recipient, None, None, "", True)
    shown = [line.removesuffix(" *") for line in block("docs/events.md", kind).splitlines()]
    making, target = Making(RESPONSE_ID, rules, lambda kind, payload: "sealed"), rules.callee_of(recipient, channel)
    emitter = emitter_for(making, header, target, 0)
    assert shown == tags_of([*emitter.open(), *emitter.text("x"), *emitter.close("completed")[1]])


def test_the_order_of_the_events_of_a_tool_that_the_service_calls_or_the_client_runs_is_the_one_in_the_document() -> (
    None
):
    for kind, block_named in HOSTED_BLOCKS.items():
        emitter = HOSTED[kind](RESPONSE_ID, 0, Hosted("docs", "search", kind=kind))
        made = [*emitter.open(), *emitter.text("{}"), *emitter.call(), *emitter.end(Outcome("completed", "Found."))[1]]
        assert block("docs/events.md", block_named).replace(" *", "").splitlines() == tags_of(made)
    for run, content in (
        (ApprovalRequestEmitter(RESPONSE_ID, 0, Hosted("docs", "search", approval=True), "commentary"), "{}"),
        (ShellCallEmitter(RESPONSE_ID, 0, Callee("shell", "shell")), '{"cmd":["ls"]}'),
        (ToolSearchCallEmitter(RESPONSE_ID, 0, Callee("tool_search", "tool_search")), "{}"),
    ):
        made = [*run.open(), *run.text(content), *run.close("completed")[1]]
        assert block("docs/events.md", run.kind).splitlines() == tags_of(made)
    _, made = listing_events(RESPONSE_ID, 0, ServerTools("docs", b"[]"))
    assert block("docs/events.md", "mcp_list_tools").splitlines() == tags_of(made)


def tags_of(made: Iterable[events.Event]) -> list[str]:
    return [str(each.__struct_config__.tag) for each in made]


def test_the_states_of_a_response_are_the_store_s() -> None:
    shown = rows(section(read("docs/architecture.md"), "A response in the background"))
    moves = [(before, after, move) for before, moves in MOVES.items() for after, move in moves.items()]
    table = [[f"`{before}`", f"`{after}`", f"`{by.script}`", by.who, by.when] for before, after, by in moves]
    assert shown == table
    assert block("docs/architecture.md", "mermaid") == state_diagram(), "run: python -m tests.support.documents"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in links(document.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (document.parent / path).resolve() if path else document
        assert there.exists(), target
        assert not anchor or anchor in anchors(there.read_text()), target


def test_what_a_document_says_is_in_a_file_is_there() -> None:
    for document in DOCUMENTS:
        text = prose(document.read_text())
        for path in re.findall(r"`((?:service|store|tests|bench|docs|scripts)/[\w./-]+)`", text):
            assert (ROOT / path).exists(), f"{document.name}: {path}"
        for name, path in re.findall(r"`([\w.]+)` in `([\w/]+\.py)`", text.replace("\n", " ")):
            for part in name.split("."):
                defined = rf"(?m)^\s*(?:async )?(?:def|class) {part}\b|^{part}\b"
                assert re.search(defined, read(path)), f"{document.name}: {name} in {path}"


def test_the_project_speaks_of_itself_alone() -> None:
    for path, text in files():
        if not path.startswith("requirements/"):  # what packages are called is their makers' choice
            assert FOREIGN.findall(PACKAGE.sub("", text)) == [], path
