"""Tools that the service runs, approvals, containers and files as no client should send them, and what it is told.

For a service that may ask a server of tools at {mcp}, has a sandbox and searches. {container} is a container, {gone} a
deleted one, {file} a file of it; {asked} is a response that asks for the approval {request}, and {used} one that was
used.
"""

from dataclasses import replace
from typing import Any

from tests.support.bad.table import (
    FUNCTION,
    JSON,
    MIB,
    MISSING,
    MODEL,
    TYPE,
    UNSUPPORTED,
    VALUE,
    Bad,
    Table,
    chosen,
    get,
    tools,
)

MCP: dict[str, Any] = {"type": "mcp", "server_label": "maths", "server_url": "{mcp}", "require_approval": "never"}
CODE: dict[str, Any] = {"type": "code_interpreter", "container": {"type": "auto"}}
SEARCH: dict[str, Any] = {"type": "web_search"}
NOBODY = "cntr_" + "0" * 48
FORM = "multipart/form-data; boundary=b"


def server(code: str, member: str, words: str, **members: Any) -> Bad:
    """A server of tools that is right but for these members, of which one is named."""
    sent = {name: value for name, value in {**MCP, **members}.items() if value is not ...}
    return tools(code, f"tools[0].{member}" if member else "tools[0]", words, sent)


def code(code: str, member: str, words: str, **members: Any) -> Bad:
    """A code interpreter that is right but for these members."""
    return tools(code, f"tools[0].{member}", words, {**CODE, **members})


def auto(code_: str, member: str, words: str, **members: Any) -> Bad:
    """A code interpreter whose container is right but for these members."""
    return code(code_, f"container.{member}", words, container={"type": "auto", **members})


def inside(container: str) -> Bad:
    """Code in a container that isn't there."""
    bad = tools("container_not_found", "container_id", "not found", {**CODE, "container": container})
    return replace(bad, status=404)


def search(code: str, member: str, words: str, **members: Any) -> Bad:
    """A web search that is right but for these members."""
    return tools(code, f"tools[0].{member}", words, {**SEARCH, **members})


def answers(words: str, *said: Any, code: str | None = None, param: str = "input", **members: Any) -> Bad:
    """Answers to the request for approval of a response."""
    body = {"model": MODEL, "input": list(said), "previous_response_id": "{asked}", "tools": [ASKING], **members}
    return Bad(body, code, param, words)


def says(**members: Any) -> dict[str, Any]:
    """An answer to the request for approval."""
    return {"type": "mcp_approval_response", "approval_request_id": "{request}", "approve": True, **members}


ASKING = {**MCP, "require_approval": "always"}
REQUEST = {"type": "mcp_approval_request", "id": "{request}", "server_label": "maths", "name": "add"}
"""Without its arguments."""


def made(code: str, param: str | None, words: str, **members: Any) -> Bad:
    """A container that is right but for these members."""
    sent = {name: value for name, value in {"name": "a", **members}.items() if value is not ...}
    return Bad(sent, code, param, words, path="/v1/containers")


def uploaded(words: str, body: bytes, kind: str = FORM, code: str = VALUE, status: int = 400) -> Bad:
    path = "/v1/containers/{container}/files"
    return Bad(lambda: body, code, "file", words, status, path=path, kind=kind)


def not_a_form(kind: str) -> Bad:
    """A file that is sent as something else."""
    path = "/v1/containers/{container}/files"
    return Bad(lambda: b"x", "unsupported_media_type", None, "send a form", 415, path=path, kind=kind)


MUCH = b"x" * (1_048_576 + 1)
"""More than all fields of a form may have."""


def form(name: str = "a.txt", part: str = "file", content: bytes = b"x", more: str = "") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{part}"; filename="{name}"\r\n{more}\r\n'
    return head.encode() + content + b"\r\n--b--\r\n"


def delete(path: str, code: str, param: str, words: str, status: int = 404) -> Bad:
    return Bad(None, code, param, words, status, "DELETE", path)


SERVERS: Table = {
    "a server and a tunnel": server(VALUE, "", "one of", tunnel_id="tunnel_1"),
    "a server without a label": server(MISSING, "server_label", "server_label", server_label=...),
    "a label of 65 letters": server(VALUE, "server_label", "1 to 64", server_label="a" * 65),
    "a label of functions": server(VALUE, "server_label", "Choose another", server_label="functions"),
    "a URL with a user": server(VALUE, "server_url", "http", server_url="http://me:pw@127.0.0.1/mcp"),
    "a URL that climbs in disguise": server(VALUE, "server_url", "..", server_url="{mcp}/%2e%2e/admin"),
    "a URL of the metadata of a cloud": server(
        VALUE, "server_url", "HARMONIUM_MCP_ALLOW", server_url="http://169.254.169.254/latest"
    ),
    "a URL beside one that is allowed": server(VALUE, "server_url", "HARMONIUM_MCP_ALLOW", server_url="{mcp}x"),
    "a server of nobody": server(VALUE, "server_label", "no server with this label", server_url=...),
    "too many headers": server(VALUE, "headers", "32", headers={f"X-{n}": "a" for n in range(33)}),
    "a header of the connection": server(VALUE, "headers", "Host", headers={"Host": "a"}),
    "a header of two lines": server(VALUE, "headers", "X", headers={"X": "a\r\nHost: b"}),
    "an authorization of two lines": server(VALUE, "headers", "Authorization", authorization="a\nb"),
    "two authorizations": server(
        VALUE, "authorization", "one of the two", authorization="a", headers={"authorization": "b"}
    ),
    "too many allowed tools": server(VALUE, "allowed_tools", "256", allowed_tools=["a"] * 257),
    "approvals of some": server(VALUE, "require_approval", "some", require_approval="some"),
    "approvals never of a number": server(
        TYPE, "require_approval.never.tool_names[0]", "a string", require_approval={"never": {"tool_names": [5]}}
    ),
    "two servers of one label": tools(VALUE, "tools[1].server_label", "same label", MCP, MCP),
    "17 servers": tools(VALUE, "tools", "16", *({**MCP, "server_label": f"s{n}"} for n in range(17))),
    "a server and a namespace of its name": tools(
        VALUE,
        "tools[0].server_label",
        "same name",
        MCP,
        {"type": "namespace", "name": "maths", "tools": [{**FUNCTION, "name": "add"}]},
    ),
    "a choice of a server that isn't there": chosen(
        VALUE, "tool_choice.server_label", "other", {"type": "mcp", "server_label": "other"}, MCP
    ),
}

CODES: Table = {
    "code without a container": tools(MISSING, "tools[0].container", "container", {"type": "code_interpreter"}),
    "code in a container of an unknown type": code(VALUE, "container.type", "manual", container={"type": "manual"}),
    "code in a container of nobody": inside(NOBODY),
    "code in a container that was deleted": inside("{gone}"),
    "code with a network": auto(
        UNSUPPORTED, "network_policy.type", "no network", network_policy={"type": "allowlist", "allowed_domains": ["a"]}
    ),
}

SEARCHES: Table = {
    "a text for filters": search(TYPE, "filters", "an object", filters="example.com"),
    "101 domains": search(VALUE, "filters.allowed_domains", "100", filters={"allowed_domains": ["a.b"] * 101}),
    "a URL for a domain": search(
        VALUE, "filters.allowed_domains[1]", "https://a.b/", filters={"allowed_domains": ["a.b", "https://a.b/"]}
    ),
    "an exact location": search(VALUE, "user_location.type", "exact", user_location={"type": "exact"}),
}

APPROVALS: Table = {
    "an answer to a request that nobody made": answers("No approval request", says(approval_request_id="mcpr_1")),
    "two answers": answers("Two items answer", says(), says()),
    "an answer without the server": answers("isn't offered", says(), tools=[], param="tools"),
    "another label's yes": answers("isn't offered", says(), tools=[{**ASKING, "server_label": "other"}], param="tools"),
    "an answer for another address": answers(
        "another address", says(), tools=[{**ASKING, "server_url": "{mcp}?another"}], param="tools"
    ),
    "a request beside its conversation": answers("Duplicate item", {**REQUEST, "arguments": "{}"}, says()),
    "a request of another call": answers(
        "No approval request", {**REQUEST, "arguments": '{"a":1}'}, says(), previous_response_id=None
    ),
    "an answer without its request": answers("No approval request", says(), previous_response_id=None),
    "a used answer": answers("has been used", says(approval_request_id="{spent}"), previous_response_id="{used}"),
}

CONTAINERS: Table = {
    "a container without a name": made(MISSING, "name", "name", name=...),
    "21 minutes": made(VALUE, "expires_after.minutes", "20", expires_after={"minutes": 21}),
    "a container with files of nobody": made(VALUE, "file_ids[0]", "no file with this id", file_ids=["file_1"]),
    "a container of no body": Bad(lambda: b"", "invalid_json", None, "no body", path="/v1/containers"),
    "a form of one": Bad(lambda: form(), "unsupported_media_type", None, JSON, 415, path="/v1/containers", kind=FORM),
    "an unknown container": get(f"/v1/containers/{NOBODY}", "container_not_found", "container_id", NOBODY, 404),
    "a container of a broken id": get("/v1/containers/cntr_%00", "container_not_found", "container_id", "cntr_", 404),
    "a deleted container": get("/v1/containers/{gone}", "container_not_found", "container_id", "not found", 404),
    "a container deleted twice": delete("/v1/containers/{gone}", "container_not_found", "container_id", "not found"),
    "no containers a page": get("/v1/containers?limit=0", VALUE, "limit", "0"),
}

FILES: Table = {
    "a file as itself": not_a_form("application/octet-stream"),
    "a form that has no end": uploaded("form", form()[:-6]),
    "a form without a file": uploaded("another part than 'file'", form(part="other")),
    "a file without a name": uploaded("no name", form(name="")),
    "a file in base64": uploaded("as they are", form(more="Content-Transfer-Encoding: base64\r\n")),
    "much beside a file": uploaded(
        "beside its file", form()[:-7] + form(part="x", content=MUCH).replace(b'; filename="a.txt"', b"")
    ),
    "a file that is where it is": uploaded("can't be stored", form(name="..")),
    "a file of a name with a zero": uploaded("control characters", form(name="a\0b")),
    "a file that doesn't fit": uploaded("may have", form(content=b"x" * (5 * MIB))),
    "a form of too many parts": uploaded(
        "more than 63 fields", form(part="x", more="").replace(b'; filename="a.txt"', b"")[:-7] * 65 + form()
    ),
    "an unknown file": get(
        "/v1/containers/{container}/files/cfile_1", "container_file_not_found", "file_id", "cfile_1", 404
    ),
    "a file by a path": get("/v1/containers/{container}/files/..%2F..%2Fetc%2Fpasswd", None, None, "Invalid URL", 404),
}

HOSTED_TABLES = (SERVERS, CODES, SEARCHES, APPROVALS, CONTAINERS, FILES)
HOSTED: Table = {name: bad for table in HOSTED_TABLES for name, bad in table.items()}
"""All of them."""
