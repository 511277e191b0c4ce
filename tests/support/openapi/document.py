"""`/openapi.json`: FastAPI's document of the routes, with the schemas of msgspec's structs in it.

The file is made by `python -m tests.support.openapi.document`, and served as it is: a service spends nothing on it. A
test makes it anew and compares.
"""

import json
from functools import partial
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from service.build import this_build
from service.features.chats import routes as chats
from service.web.queries import FILTER
from service.web.routes.welcome import DOCS, OPENAPI
from tests.support.openapi import bodies
from tests.support.openapi.operations import EVERYWHERE, LINKS, MEANINGS, OPERATIONS, Operation
from tests.support.openapi.page import page
from tests.support.openapi.schemas import REF, Schemas, schemas
from tests.support.openapi.words import ABOUT, HEADERS, KEY, PARAMETERS, SUMMARY, TAGS
from tests.support.service.routes import all_routes

Json = dict[str, Any]

EVENT_STREAM = "text/event-stream"


_MADE_HERE = {each.operation_id: each.description for each in chats.router.routes if isinstance(each, APIRoute)}
"""The words of what is made here, or passed on, by the ids of the operations."""


def document() -> Json:
    """The document."""
    made = get_openapi(
        title="harmonium",
        version=this_build().version,
        summary=SUMMARY,
        description=ABOUT,
        routes=list(all_routes()),
        tags=[{"name": name, "description": words} for name, words in TAGS.items()],
        servers=[{"url": "/"}],
    )
    made["info"]["license"] = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
    known = schemas()
    for on in made["paths"].values():
        for operation in on.values():
            if (here := _MADE_HERE.get(operation["operationId"])) is not None:
                operation["description"] += f"\n\nWith `HARMONIUM_CHATS=remember` it is made here: {here}"
            _complete(operation, OPERATIONS[operation["operationId"]], known)
    made["security"] = [{"key": []}, {}]
    made["components"] = {
        "schemas": dict(sorted(known.components.items())),
        "responses": {str(status): _refusal(status) for status in MEANINGS},
        "headers": HEADERS,
        "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": KEY}},
    }
    return made


def written() -> str:
    """The document as its file has it."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def _complete(operation: Json, known: Operation, schemas: Schemas) -> None:
    """Put what an operation takes and answers into FastAPI's entry of it."""
    if known.takes is not None:
        content = _json(schemas.of(known.takes))
        if known.form:
            content = {"multipart/form-data": content["application/json"]}
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = {
        **{str(status): _answer(kind, known, schemas) for status, kind in known.answers.items()},
        **({"304": _UNCHANGED} if known.validated else {}),
        **{str(status): _refusal_of(operation, status) for status in _refusals(known)},
    }
    if operation["operationId"] in LINKS:
        given, to = LINKS[operation["operationId"]]
        operation["responses"]["200"]["links"] = {id: {"operationId": id, "parameters": given} for id in to}
    if known.open:
        operation["security"] = []
    listed: list[Json] = operation.pop("parameters", [])
    parameters = [each for each in listed if each["name"] not in known.not_ours]
    for parameter in parameters:
        _describe(parameter)
    parameters += [_ADDED[name](schemas) for name in known.parameters]
    if parameters:
        operation["parameters"] = parameters


def _refusals(known: Operation) -> list[int]:
    return sorted({*EVERYWHERE, *known.refusals, *(() if known.open else (401, 503))} - known.answers.keys())


def _answer(kind: Any, known: Operation, schemas: Schemas) -> Json:
    content = {} if kind is None else _json(schemas.of(kind))
    if known.streams:
        events = "ResponseStreamEvent" if known.streams is True else known.streams
        content[EVENT_STREAM] = {"schema": {"$ref": f"{REF}{events}"}}
    content |= {text: {"schema": {"type": "string"}} for text in known.texts}
    return {
        "description": known.says,
        "headers": _headers("x-request-id", *(("etag",) if known.validated else ())),
        **({"content": content} if content else {}),
    }


OF_MESSAGES = ("createMessage", "countMessageTokens")
"""The operations of Anthropic's API, which has errors of its own."""


def _refusal_of(operation: Json, status: int) -> Json:
    if operation["operationId"] in OF_MESSAGES:
        return _refusal(status, "MessagesError")
    return {"$ref": f"#/components/responses/{status}"}


def _refusal(status: int, error: str = "Error") -> Json:
    return {
        "description": MEANINGS[status],
        "headers": _headers("x-request-id", "x-should-retry", *(("retry-after",) if status in (429, 503) else ())),
        "content": _json({"$ref": f"{REF}{error}"}),
    }


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _headers(*names: str) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


_UNCHANGED: Json = {
    "description": "The client already has this response (`If-None-Match`).",
    "headers": _headers("x-request-id", "etag"),
}


def _describe(parameter: Json) -> None:
    """A parameter as it is written: one that isn't there is not null."""
    schema = parameter["schema"]
    if "anyOf" in schema:
        schema |= next(kind for kind in schema.pop("anyOf") if kind.get("type") != "null")
    schema.pop("title", None)
    if parameter["name"] == "include":
        schema["items"] = {"$ref": f"{REF}Include"}
    parameter["description"] = PARAMETERS[parameter["name"]]


def _filter(schemas: Schemas) -> Json:
    """A parameter of which FastAPI knows nothing: metadata[key]=value."""
    return {
        "name": FILTER,
        "in": "query",
        "required": False,
        "style": "deepObject",
        "explode": True,
        "schema": schemas.of(bodies.Metadata),
        "description": PARAMETERS[FILTER],
    }


def _header(name: str, schemas: Schemas) -> Json:
    kind: Json = {"type": "string", "enum": ["true", "false"]} if name == "X-Harmonium-Detach" else {"type": "string"}
    return {"name": name, "in": "header", "required": False, "schema": kind, "description": PARAMETERS[name]}


_SENT = ("Idempotency-Key", "If-None-Match", "X-Harmonium-Detach")
_ADDED = {"metadata": _filter} | {name: partial(_header, name) for name in _SENT}


def rewrite() -> None:
    """Write the file, and the page for people, anew."""
    OPENAPI.write_text(written())
    DOCS.write_text(page(document()))


if __name__ == "__main__":
    rewrite()
