"""`/openapi.json` and `/docs`: they are of the routes and the wire's types, and open to everybody."""

import json
import re
from collections.abc import Iterator
from functools import cache, partial
from itertools import islice
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given

from service.api.conversation import MAX_ITEMS, read_added, read_changed, read_new
from service.api.events import Event, Lifecycle
from service.api.request import CreateBody, read_create
from service.api.steer import read_posted
from service.decoding import decode_list
from service.errors import ApiError
from service.process import Settings
from service.responses import edit_conversation as by_hand
from service.responses.prompt.compaction import CompactBody, read_compact
from service.settings.core import parse_api_keys
from service.web.dialect import OPENAI
from service.web.routes.welcome import DOCS, OPENAPI
from service.web.sse import Encoder
from tests.support.openapi.document import document, written
from tests.support.openapi.page import page
from tests.support.openapi.samples import allowed, spoilt
from tests.support.openapi.schemas import REF
from tests.support.responses import requests
from tests.support.responses.event_samples import any_event
from tests.support.service.inside import serving
from tests.support.service.process import ACME_KEY, MODEL, ServiceProcess
from tests.support.service.routes import all_routes

Json = dict[str, Any]

KNOWN: Json = json.loads(OPENAPI.read_text())
SCHEMAS: Json = KNOWN["components"]["schemas"]
SAID = {"model": MODEL, "input": "hi", "stream": True}
OF_ITSELF = {("get", "/docs"), ("get", "/docs/{name}"), ("get", "/openapi.json")}
PROBES = {"HEAD", "OPTIONS"}


def validator(name: str) -> Any:
    """What judges a value by a schema of the document."""
    return jsonschema_rs.validator_for({"$ref": REF + name, "components": {"schemas": SCHEMAS}})


# --- the files ---


def test_the_files_are_those_that_are_made_of_the_code() -> None:
    advice = "run python -m tests.support.openapi.document"
    assert OPENAPI.read_text() == written(), advice
    assert DOCS.read_text() == page(document()), advice


def test_every_route_is_in_the_document_and_the_other_way_round() -> None:
    served = {
        (method.lower(), route.path_format.removeprefix("/open-responses"))
        for route in all_routes()
        for method in route.methods
        if method not in PROBES and not route.path.startswith(("/console", OPENAI.prefix + "/organization"))
    }
    assert served - OF_ITSELF == {(verb, path) for path, on in KNOWN["paths"].items() for verb in on}


def test_a_schema_is_one_and_can_be_fulfilled() -> None:
    for name, schema in SCHEMAS.items():
        jsonschema_rs.meta.validate(schema)
        judge = validator(name)
        for value in islice(allowed(schema, SCHEMAS), 64):
            judge.validate(value)


# --- serving them ---


async def test_they_are_open_without_a_key_and_say_nothing_that_is_secret(settings: Settings) -> None:
    secret = settings.model_copy(update={"model": "secret-model", "api_keys": parse_api_keys(f"acme:{ACME_KEY}")})
    async with serving(secret) as inside, inside.http() as http:
        described, shown = await http.get("/openapi.json"), await http.get("/docs")
    assert (described.status_code, shown.status_code) == (200, 200)
    assert (described.headers["content-type"], described.text) == ("application/json", OPENAPI.read_text())
    assert (shown.headers["content-type"], shown.text) == ("text/html; charset=utf-8", DOCS.read_text())
    assert "default-src 'none'" in shown.headers["content-security-policy"]
    assert not re.search("secret-model|acme", described.text + shown.text)


# --- what clients send ---

BEYOND_SCHEMAS = (
    ("invalid_value", r"conversation(\.id)?"),
    ("missing_required_parameter", r"input\[0\]\.content"),  # something of it can be read
    ("missing_required_parameter", "model|input"),  # one of several must be there
    ("missing_required_parameter", r"input\[0\]\.(id|call_id)"),  # likewise; and a client's search has one
    ("missing_required_parameter", r"previous_input_messages\[0\]\.(role|content)"),
    ("invalid_value", r"tool_choice\b.*"),  # it names a tool that isn't declared
    ("unsupported_parameter", r".*\.allowed_callers"),  # `direct` must be among them
    ("invalid_value", r"input\[0\]\.type"),  # nothing follows a trigger
    ("invalid_value", r"background_options\.completion_window"),  # it needs the background
    ("invalid_value", "previous_response_id"),  # the path has another one
    ("invalid_grammar", r".*\.format\.definition"),
)
"""Refusals of what a schema allows: its code, and the parameter."""


def read(**body: Any) -> None:
    requests.read(**{**SAID, **body})


def items_of(sent: msgspec.Raw) -> list[Any]:
    """The items that are put into a conversation: a list, and not too many."""
    by_hand._refuse_another_type(sent)
    return [json.loads(bytes(each)) for each in decode_list(sent, MAX_ITEMS, "items")]


def read_body(name: str, value: Any, *, refuses: bool) -> None:
    sent, asked = json.dumps(value).encode(), partial(read, refuses=refuses)
    match name:
        case "CreateResponse":
            asked(**value)
        case "CompactConversation":
            requests.read_checked(read_compact(sent, store=True), refuses=refuses)
        case "CreateConversation":
            asked(input=items_of(read_new(sent).items) or "hi")
        case "UpdateConversation":
            read_changed(sent)
        case "AddItems":
            asked(input=items_of(read_added(sent)))
        case "SteerResponse":
            asked(input=json.loads(bytes(read_posted(sent, "a"))))


def refusal_of(name: str, value: Any, *, refuses: bool = False) -> ApiError | None:
    try:
        read_body(name, value, refuses=refuses)
    except ApiError as error:
        return error
    return None


def is_beyond_schemas(error: ApiError) -> bool:
    """Whether no schema could have said that."""
    return any(error.code == code and re.fullmatch(param, str(error.param)) for code, param in BEYOND_SCHEMAS)


def _spoilt(name: str) -> Iterator[Json]:
    seen = set()
    for value in allowed(SCHEMAS[name], SCHEMAS):
        for wrong in spoilt(value):
            text = json.dumps(wrong)
            if isinstance(wrong, dict) and text not in seen and len(text) < 5_000:
                seen.add(text)
                yield wrong


BODIES = (
    "CreateResponse",
    "CompactConversation",
    "CreateConversation",
    "UpdateConversation",
    "AddItems",
    "SteerResponse",
)


@pytest.mark.parametrize("name", BODIES)
def test_readers_take_what_the_document_allows(name: str) -> None:
    values = list(allowed(SCHEMAS[name], SCHEMAS))
    refusals = [(value, error) for value in values if (error := refusal_of(name, value)) is not None]
    assert [(value, str(error)) for value, error in refusals if not is_beyond_schemas(error)] == []
    assert len(refusals) < len(values) / 5


@pytest.mark.parametrize("name", BODIES)
def test_readers_refuse_what_the_document_does_not_allow(name: str) -> None:
    judge = validator(name)
    wrong = [value for value in _spoilt(name) if not judge.is_valid(value)]
    taken = [value for value in wrong if refusal_of(name, value, refuses=True) is None]
    assert taken == []
    assert len(wrong) > 10


def test_what_is_served_is_described_and_nothing_else_is() -> None:
    described = SCHEMAS["CreateResponse"]["properties"].keys()
    assert described <= set(CreateBody.__struct_fields__)
    for name in set(CreateBody.__struct_fields__) - described:
        with pytest.raises(ApiError) as refusal:
            read_create(json.dumps({**SAID, name: "something"}).encode(), store=True)
        assert refusal.value.code == "unsupported_parameter"
    assert SCHEMAS["CompactConversation"]["properties"].keys() == set(CompactBody.__struct_fields__) - {"image"}


# --- what it answers ---


def closed(schema: Any) -> Any:
    """A schema that allows no members but those that it names."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    told = {key: closed(each) for key, each in schema.items()}
    if "properties" in told and isinstance(told["properties"], dict):
        told.setdefault("additionalProperties", False)
    return told


STRICT = closed(SCHEMAS)


@cache
def strict(name: str) -> Any:
    """What judges an answer by a schema of the document, and finds members that this doesn't have."""
    return jsonschema_rs.validator_for({"$ref": REF + name, "components": {"schemas": STRICT}})


def check(operation: str, status: int, body: Any) -> None:
    """Judge an answer by the document, which must name each member of it."""
    (described,) = [
        each["responses"][str(status)]
        for on in KNOWN["paths"].values()
        for each in on.values()
        if each["operationId"] == operation
    ]
    if "$ref" in described:
        described = KNOWN["components"]["responses"][str(status)]
    schema = described["content"]["application/json"]["schema"]
    jsonschema_rs.validator_for({**schema, "components": {"schemas": STRICT}}).validate(body)


@given(any_event)
def test_every_event_is_as_described(event: Event) -> None:
    if isinstance(event, Lifecycle):  # any JSON stands there for the echo of tools
        event = msgspec.structs.replace(event, response=msgspec.structs.replace(event.response, tools=[]))
    buffer = bytearray()
    Encoder(obfuscate=True).append([event], buffer)
    sent = json.loads(buffer.partition(b"data: ")[2])
    strict(f"{type(event).__name__}Event").validate(sent)


TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
RICH: Json = {
    "model": MODEL,
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
    ],
    "tools": [TOOL, {"type": "namespace", "name": "crm", "description": "x", "tools": [TOOL]}],
    "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
    "metadata": {"a": "b"},
}


def test_answers_have_no_member_that_is_not_described(service: ServiceProcess) -> None:
    http = service.http()
    made = http.post("/v1/responses", json=RICH)
    of = f"/v1/responses/{made.json()['id']}"
    begun = http.post("/v1/conversations", json={"items": RICH["input"], "metadata": {"a": "b"}})
    conversation = f"/v1/conversations/{begun.json()['id']}"
    for operation, answer in (
        ("createResponse", made),
        ("retrieveResponse", http.get(of)),
        ("retrieveResponse", http.get("/v1/responses/resp_unknown")),
        ("listInputItems", http.get(f"{of}/input_items")),
        ("deleteResponse", http.delete(of)),
        ("compactConversation", http.post("/v1/responses/compact", json={"model": MODEL, "input": "hi"})),
        ("createConversation", begun),
        ("listConversationItems", http.get(f"{conversation}/items")),
        ("listConversations", http.get("/v1/conversations")),
        ("deleteConversation", http.delete(conversation)),
        ("listModels", http.get("/v1/models")),
        ("ready", http.get("/ready")),
    ):
        check(operation, answer.status_code, answer.json())
