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
    STRANGE,
    TYPE,
    UNSUPPORTED,
    VALUE,
    Bad,
    Table,
    chosen,
    get,
    items,
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


def form(name: str = "a.txt", part: str = "file", content: bytes = b"x", more: str = "") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{part}"; filename="{name}"\r\n{more}\r\n'
    return head.encode() + content + b"\r\n--b--\r\n"


def delete(path: str, code: str, param: str, words: str, status: int = 404) -> Bad:
    return Bad(None, code, param, words, status, "DELETE", path)


SERVERS: Table = {
    "a server without a label": server(MISSING, "server_label", "server_label", server_label=...),
    "a number for a label": server(TYPE, "server_label", "a string", server_label=5),
    "an empty label": server(VALUE, "server_label", "1 to 64", server_label=""),
    "a label of 65 letters": server(VALUE, "server_label", "1 to 64", server_label="a" * 65),
    "a label with a dot": server(VALUE, "server_label", "a.b", server_label="a.b"),
    "a label in Greek": server(VALUE, "server_label", "λ", server_label="λ"),
    "a label with control tokens": server(VALUE, "server_label", "<|end|>", server_label="<|end|>"),
    "a label of functions": server(VALUE, "server_label", "Take another", server_label="functions"),
    "a label of the browser": server(VALUE, "server_label", "Take another", server_label="browser"),
    "a label of Python": server(VALUE, "server_label", "Take another", server_label="python"),
    "a label of a role": server(VALUE, "server_label", "Take another", server_label="assistant"),
    "a number for a URL": server(TYPE, "server_url", "a string", server_url=5),
    "an empty URL": server(VALUE, "server_url", "http", server_url=""),
    "a URL without a scheme": server(VALUE, "server_url", "http", server_url="example.com/mcp"),
    "a URL of a file": server(VALUE, "server_url", "http", server_url="file:///etc/passwd"),
    "a URL of another protocol": server(VALUE, "server_url", "http", server_url="gopher://example.com/"),
    "a URL with a user": server(VALUE, "server_url", "http", server_url="http://me:pw@127.0.0.1/mcp"),
    "a URL that climbs": server(VALUE, "server_url", "..", server_url="{mcp}/../admin"),
    "a URL that climbs in disguise": server(VALUE, "server_url", "..", server_url="{mcp}/%2e%2e/admin"),
    "a URL with two lines": server(VALUE, "server_url", "http", server_url="http://a\r\nb/"),
    "a URL that is a book": server(VALUE, "server_url", "2048", server_url="http://" + "a" * 2_048),
    "a URL of the metadata of a cloud": server(
        VALUE, "server_url", "HARMONIUM_MCP_ALLOW", server_url="http://169.254.169.254/latest"
    ),
    "a URL beside one that is allowed": server(VALUE, "server_url", "HARMONIUM_MCP_ALLOW", server_url="{mcp}x"),
    "a server of nobody": server(VALUE, "server_label", "no server of this label", server_url=...),
    "a server and a connector": server(VALUE, "", "one of", connector_id="connector_gmail"),
    "a server and a tunnel": server(VALUE, "", "one of", tunnel_id="tunnel_1"),
    "a number for a connector": server(TYPE, "connector_id", "a string", connector_id=5),
    "a number for a server's description": server(TYPE, "server_description", "a string", server_description=5),
    "a server's book of a description": server(VALUE, "server_description", "4096", server_description="x" * 4_097),
    "headers in a list": server(TYPE, "headers", "an object", headers=["a"]),
    "a header that is a number": server(TYPE, "headers", "a string", headers={"X": 5}),
    "too many headers": server(VALUE, "headers", "32", headers={f"X-{n}": "a" for n in range(33)}),
    "a header of the connection": server(VALUE, "headers", "Host", headers={"Host": "a"}),
    "a header of the protocol": server(VALUE, "headers", "Mcp-Session-Id", headers={"Mcp-Session-Id": "a"}),
    "a header of the content": server(VALUE, "headers", "content-length", headers={"content-length": "0"}),
    "a header of two lines": server(VALUE, "headers", "X", headers={"X": "a\r\nHost: b"}),
    "a header whose name has spaces": server(VALUE, "headers", "a b", headers={"a b": "c"}),
    "a header that is a book": server(VALUE, "headers", "X", headers={"X": "a" * 8_193}),
    "a number for an authorization": server(TYPE, "authorization", "a string", authorization=5),
    "an authorization that is a book": server(VALUE, "authorization", "8192", authorization="a" * 8_193),
    "an authorization of two lines": server(VALUE, "headers", "Authorization", authorization="a\nb"),
    "two authorizations": server(
        VALUE, "authorization", "one of the two", authorization="a", headers={"authorization": "b"}
    ),
    "a text for allowed tools": server(TYPE, "allowed_tools", "", allowed_tools="add"),
    "a number among allowed tools": server(TYPE, "allowed_tools[0]", "a string", allowed_tools=[5]),
    "too many allowed tools": server(VALUE, "allowed_tools", "256", allowed_tools=["a"] * 257),
    "an allowed tool that is a book": server(VALUE, "allowed_tools[0]", "256", allowed_tools=["a" * 257]),
    "an unknown key of allowed tools": server(STRANGE, "allowed_tools.names", "names", allowed_tools={"names": []}),
    "tools that perhaps read": server(TYPE, "allowed_tools.read_only", "a boolean", allowed_tools={"read_only": "yes"}),
    "approvals of some": server(VALUE, "require_approval", "some", require_approval="some"),
    "approvals that are a truth": server(TYPE, "require_approval", "", require_approval=True),
    "approvals in a list": server(TYPE, "require_approval", "", require_approval=["add"]),
    "unknown approvals": server(STRANGE, "require_approval.sometimes", "sometimes", require_approval={"sometimes": {}}),
    "approvals never of a text": server(TYPE, "require_approval.never", "an object", require_approval={"never": "add"}),
    "approvals never of a number": server(
        TYPE, "require_approval.never.tool_names[0]", "a string", require_approval={"never": {"tool_names": [5]}}
    ),
    "a text for loading later": server(TYPE, "defer_loading", "a boolean", defer_loading="yes"),
    "a server for programs alone": server(UNSUPPORTED, "allowed_callers", "direct", allowed_callers=["programmatic"]),
    "an unknown caller of a server": server(VALUE, "allowed_callers[0]", "me", allowed_callers=["me"]),
    "an unknown key of a server": server(STRANGE, "command", "command", command=["sh"]),
    "two servers of one label": tools(VALUE, "tools[1].server_label", "same label", MCP, MCP),
    "17 servers": tools(VALUE, "tools", "16", *({**MCP, "server_label": f"s{n}"} for n in range(17))),
    "a server in a namespace": tools(
        VALUE, "tools[0].tools[0].type", "mcp", {"type": "namespace", "name": "n", "tools": [MCP]}
    ),
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
    "a choice of a tool that the server hasn't": chosen(
        VALUE, "tool_choice.name", "fly", {"type": "mcp", "server_label": "maths", "name": "fly"}, MCP
    ),
    "a choice of a number of a server": chosen(
        TYPE, "tool_choice.server_label", "a string", {"type": "mcp", "server_label": 5}, MCP
    ),
    "an allowed server that isn't there": chosen(
        *(VALUE, "tool_choice.tools[0].server_label", "other"),
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "other"}]},
        MCP,
    ),
}

CODES: Table = {
    "code without a container": tools(MISSING, "tools[0].container", "container", {"type": "code_interpreter"}),
    "code in null": code(MISSING, "container", "container", container=None),
    "code in a number": code(TYPE, "container", "", container=5),
    "code in a list": code(TYPE, "container", "", container=[]),
    "code in a container of no type": code(MISSING, "container.type", "type", container={}),
    "code in a container of an unknown type": code(VALUE, "container.type", "manual", container={"type": "manual"}),
    "code in a container of nobody": inside(NOBODY),
    "code in a container of no id": inside("x"),
    "code in a container that was deleted": inside("{gone}"),
    "files from elsewhere": auto(UNSUPPORTED, "file_ids", "/files", file_ids=["file_1"]),
    "a text for files from elsewhere": auto(TYPE, "file_ids", "an array", file_ids="file_1"),
    "a number for memory": auto(TYPE, "memory_limit", "a string", memory_limit=1),
    "an odd amount of memory": auto(VALUE, "memory_limit", "2g", memory_limit="2g"),
    "code with a network": auto(
        UNSUPPORTED, "network_policy.type", "no network", network_policy={"type": "allowlist", "allowed_domains": ["a"]}
    ),
    "a network of no type": auto(MISSING, "network_policy.type", "type", network_policy={}),
    "a text for a network": auto(TYPE, "network_policy", "an object", network_policy="disabled"),
    "an unknown key of a container": auto(STRANGE, "image", "image", image="alpine"),
    "an unknown key of code": code(STRANGE, "timeout", "timeout", timeout=5),
    "code for programs alone": code(UNSUPPORTED, "allowed_callers", "direct", allowed_callers=["programmatic"]),
    "an unknown caller of code": code(VALUE, "allowed_callers[0]", "me", allowed_callers=["me"]),
    "code in a namespace": tools(
        VALUE, "tools[0].tools[0].type", "code_interpreter", {"type": "namespace", "name": "n", "tools": [CODE]}
    ),
    "a choice of undeclared code": chosen(VALUE, "tool_choice.type", "Declare", {"type": "code_interpreter"}, FUNCTION),
    "a list of code back": items(TYPE, "input[0].code", "a string", {"type": "code_interpreter_call", "code": ["1"]}),
    "an output of code of no type": items(
        MISSING, "input[0].outputs[0].type", "type", {"type": "code_interpreter_call", "code": "1", "outputs": [{}]}
    ),
    "a number for logs": items(
        *(TYPE, "input[0].outputs[0].logs", "a string"),
        {"type": "code_interpreter_call", "code": "1", "outputs": [{"type": "logs", "logs": 5}]},
    ),
    "too many outputs of code": items(
        *(VALUE, "input[0].outputs", "1024"),
        {"type": "code_interpreter_call", "code": "1", "outputs": [{"type": "logs", "logs": ""}] * 1_025},
    ),
    "a number for the container of a call": items(
        TYPE, "input[0].container_id", "a string", {"type": "code_interpreter_call", "code": "1", "container_id": 5}
    ),
}

SEARCHES: Table = {
    "a text for filters": search(TYPE, "filters", "an object", filters="example.com"),
    "text for domains": search(TYPE, "filters.allowed_domains", "an array", filters={"allowed_domains": "example.com"}),
    "a number among domains": search(TYPE, "filters.allowed_domains[0]", "a string", filters={"allowed_domains": [5]}),
    "101 domains": search(VALUE, "filters.allowed_domains", "100", filters={"allowed_domains": ["a.b"] * 101}),
    "an empty domain": search(VALUE, "filters.allowed_domains[0]", "example.com", filters={"allowed_domains": [""]}),
    "a URL for a domain": search(
        VALUE, "filters.allowed_domains[1]", "https://a.b/", filters={"allowed_domains": ["a.b", "https://a.b/"]}
    ),
    "a domain with a space": search(VALUE, "filters.allowed_domains[0]", "a b", filters={"allowed_domains": ["a b"]}),
    "a domain with a star": search(VALUE, "filters.allowed_domains[0]", "*.a", filters={"allowed_domains": ["*.a"]}),
    "a domain with a port": search(VALUE, "filters.allowed_domains[0]", "a:80", filters={"allowed_domains": ["a:80"]}),
    "a domain that is a book": search(
        VALUE, "filters.allowed_domains[0]", "Give a domain", filters={"allowed_domains": ["a" * 201]}
    ),
    "a text for a location": search(TYPE, "user_location", "an object", user_location="Brest"),
    "an exact location": search(VALUE, "user_location.type", "exact", user_location={"type": "exact"}),
    "a country in whole": search(
        VALUE, "user_location.country", "France", user_location={"type": "approximate", "country": "France"}
    ),
    "a country that is a number": search(
        TYPE, "user_location.country", "a string", user_location={"type": "approximate", "country": 33}
    ),
    "a country in digits": search(
        VALUE, "user_location.country", "33", user_location={"type": "approximate", "country": "33"}
    ),
    "a long city": search(VALUE, "user_location.city", "200", user_location={"type": "approximate", "city": "a" * 201}),
    "a huge context": search(VALUE, "search_context_size", "huge", search_context_size="huge"),
    "a context of a number": search(TYPE, "search_context_size", "a string", search_context_size=512),
    "a text for live access": search(TYPE, "external_web_access", "a boolean", external_web_access="yes"),
    "a choice of an undeclared search": chosen(VALUE, "tool_choice.type", "Declare", {"type": "web_search"}, FUNCTION),
}

APPROVALS: Table = {
    "an answer to a request that nobody made": answers("No approval request", says(approval_request_id="mcpr_1")),
    "an answer to a request of zeros": answers("No approval request", says(approval_request_id=f"mcpr_{'0' * 52}")),
    "an answer to a call": answers("No approval request", says(approval_request_id=f"mcp_{'0' * 52}")),
    "an answer to nothing": answers("No approval request", says(approval_request_id="")),
    "an answer to a number": answers(
        "a string", says(approval_request_id=5), code=TYPE, param="input[0].approval_request_id"
    ),
    "an answer that says nothing": answers(
        "approve",
        {"type": "mcp_approval_response", "approval_request_id": "{request}"},
        code=MISSING,
        param="input[0].approve",
    ),
    "an answer of one": answers("a boolean", says(approve=1), code=TYPE, param="input[0].approve"),
    "an answer of null": answers("a boolean", says(approve=None), code=TYPE, param="input[0].approve"),
    "a reason of a number": answers("a string", says(reason=5), code=TYPE, param="input[0].reason"),
    "a reason that is a book, of a request that waits": answers(
        "4096", says(reason="x" * 4_097), code=VALUE, param="input[0].reason"
    ),
    "two answers": answers("Two items answer", says(), says()),
    "two answers that differ": answers("Two items answer", says(), says(approve=False)),
    "an answer without the server": answers("isn't offered", says(), tools=[], param="tools"),
    "a toolless answer": answers("isn't offered", says(), tools=[{**ASKING, "allowed_tools": ["fail"]}], param="tools"),
    "another label's yes": answers("isn't offered", says(), tools=[{**ASKING, "server_label": "other"}], param="tools"),
    "an answer for another address": answers(
        "another address", says(), tools=[{**ASKING, "server_url": "{mcp}?another"}], param="tools"
    ),
    "a request beside its conversation": answers("Duplicate item", {**REQUEST, "arguments": "{}"}, says()),
    "a request of another call": answers(
        "No approval request", {**REQUEST, "arguments": '{"a":1}'}, says(), previous_response_id=None
    ),
    "a request of another tool": answers(
        "No approval request", {**REQUEST, "name": "fail", "arguments": "{}"}, says(), previous_response_id=None
    ),
    "a request without arguments": answers(
        "arguments", REQUEST, says(), previous_response_id=None, code=MISSING, param="input[0].arguments"
    ),
    "a request with an object": answers(
        "a string",
        {**REQUEST, "arguments": {}},
        says(),
        previous_response_id=None,
        code=TYPE,
        param="input[0].arguments",
    ),
    "a request of a number": answers(
        "a string", {**REQUEST, "arguments": "{}", "id": 5}, previous_response_id=None, code=TYPE, param="input[0].id"
    ),
    "an answer without its request": answers("No approval request", says(), previous_response_id=None),
    "a used answer": answers("has been used", says(approval_request_id="{spent}"), previous_response_id="{used}"),
    "a call without arguments": items(
        MISSING, "input[0].arguments", "arguments", {"type": "mcp_call", "server_label": "maths", "name": "add"}
    ),
    "a number for what a call said": items(
        *(TYPE, "input[0].output", "a string"),
        {"type": "mcp_call", "server_label": "maths", "name": "add", "arguments": "{}", "output": 5},
    ),
    "a number for the approval of a call": items(
        *(TYPE, "input[0].approval_request_id", "a string"),
        {"type": "mcp_call", "server_label": "m", "name": "add", "arguments": "{}", "approval_request_id": 5},
    ),
}

CONTAINERS: Table = {
    "a container without a name": made(MISSING, "name", "name", name=...),
    "a container of null": made(TYPE, "name", "a string", name=None),
    "a number for a container's name": made(TYPE, "name", "a string", name=5),
    "a container's name that is a book": made(VALUE, "name", "256", name="a" * 257),
    "a text for its end": made(TYPE, "expires_after", "an object", expires_after="20m"),
    "no minutes": made(VALUE, "expires_after.minutes", "0", expires_after={"minutes": 0}),
    "21 minutes": made(VALUE, "expires_after.minutes", "20", expires_after={"minutes": 21}),
    "a text for minutes": made(TYPE, "expires_after.minutes", "an integer", expires_after={"minutes": "5"}),
    "half a minute": made(TYPE, "expires_after.minutes", "an integer", expires_after={"minutes": 0.5}),
    "an unknown anchor": made(VALUE, "expires_after.anchor", "birth", expires_after={"anchor": "birth"}),
    "an unknown key of its end": made(STRANGE, "expires_after.hours", "hours", expires_after={"hours": 1}),
    "a container with files from elsewhere": made(UNSUPPORTED, "file_ids", "/files", file_ids=["file_1"]),
    "a text for its files": made(TYPE, "file_ids", "an array", file_ids="file_1"),
    "a container of odd memory": made(VALUE, "memory_limit", "3g", memory_limit="3g"),
    "a networked one": made(UNSUPPORTED, "network_policy.type", "no network", network_policy={"type": "allowlist"}),
    "a list for a network": made(TYPE, "network_policy", "an object", network_policy=[]),
    "a container with skills": made(UNSUPPORTED, "skills", "", skills=[{"type": "inline"}]),
    "an unknown key of a new container": made(STRANGE, "image", "image", image="alpine"),
    "a container of no body": Bad(lambda: b"", "invalid_json", None, "no body", path="/v1/containers"),
    "a container of a list": Bad(lambda: b"[]", TYPE, None, "an object", path="/v1/containers"),
    "a container of half a JSON": Bad(lambda: b'{"na', "invalid_json", None, "parsed", path="/v1/containers"),
    "a form of one": Bad(lambda: form(), "unsupported_media_type", None, JSON, 415, path="/v1/containers", kind=FORM),
    "an unknown container": get(f"/v1/containers/{NOBODY}", "container_not_found", "container_id", NOBODY, 404),
    "a container of another kind": get("/v1/containers/resp_1", "container_not_found", "container_id", "resp_1", 404),
    "a container of a broken id": get("/v1/containers/cntr_%00", "container_not_found", "container_id", "cntr_", 404),
    "a container of a long id": get("/v1/containers/" + "x" * 999, "container_not_found", "container_id", "xx", 404),
    "a deleted container": get("/v1/containers/{gone}", "container_not_found", "container_id", "not found", 404),
    "a container deleted twice": delete("/v1/containers/{gone}", "container_not_found", "container_id", "not found"),
    "no containers a page": get("/v1/containers?limit=0", VALUE, "limit", "0"),
    "101 containers a page": get("/v1/containers?limit=101", VALUE, "limit", "101"),
    "some containers a page": get("/v1/containers?limit=some", VALUE, "limit", "some"),
    "containers in no order": get("/v1/containers?order=up", VALUE, "order", "up"),
    "containers after none": get("/v1/containers?after=cntr_1", VALUE, "after", "cntr_1"),
    "an unknown query of containers": get("/v1/containers?color=red", STRANGE, "color", "color"),
}

FILES: Table = {
    "a file as JSON": uploaded("form", b'{"file_id": "file_1"}', JSON),
    "a file as itself": not_a_form("application/octet-stream"),
    "a file of no type": not_a_form(""),
    "a form without a boundary": uploaded("form", form(), "multipart/form-data"),
    "a form of another boundary": uploaded("", form(), "multipart/form-data; boundary=c"),
    "an empty form": uploaded("form", b"", code=MISSING),
    "a form that has no end": uploaded("no end", form()[:-6]),
    "a form of one line": uploaded("form", b"--b\r\n", code=MISSING),
    "a form without a file": uploaded("form", form(part="other"), code=MISSING),
    "a file without a name": uploaded("no name", form(name="")),
    "a file of a name of spaces": uploaded("no name", form(name=" ")),
    "a file that is a folder": uploaded("no name", form(name="folder/")),
    "a file that is where it is": uploaded("can't be there", form(name="..")),
    "a file of a name that is no text": uploaded("UTF-8", form().replace(b"a.txt", b"\xff\xfe")),
    "a file of a name with a zero": uploaded("control characters", form(name="a\0b")),
    "a file of a long name": uploaded("can't be there", form(name="a" * 300)),
    "a file in base64": uploaded("as they are", form(more="Content-Transfer-Encoding: base64\r\n")),
    "a file that doesn't fit": uploaded("may have", form(content=b"x" * (5 * MIB))),
    "a form of too many parts": uploaded("64 parts", b"--b\r\n\r\nx\r\n" * 65 + form()),
    "a file for nobody's container": Bad(
        lambda: form(),
        "container_not_found",
        "container_id",
        NOBODY,
        404,
        path=f"/v1/containers/{NOBODY}/files",
        kind=FORM,
    ),
    "a file for a deleted container": Bad(
        lambda: form(),
        "container_not_found",
        "container_id",
        "not found",
        404,
        path="/v1/containers/{gone}/files",
        kind=FORM,
    ),
    "nobody's container": get(f"/v1/containers/{NOBODY}/files", "container_not_found", "container_id", NOBODY, 404),
    "deleted ones' files": get("/v1/containers/{gone}/files", "container_not_found", "container_id", "not found", 404),
    "no files a page": get("/v1/containers/{container}/files?limit=0", VALUE, "limit", "0"),
    "some files a page": get("/v1/containers/{container}/files?limit=x", VALUE, "limit", "x"),
    "files in no order": get("/v1/containers/{container}/files?order=up", VALUE, "order", "up"),
    "files after none": get("/v1/containers/{container}/files?after=cfile_1", VALUE, "after", "cfile_1"),
    "an unknown query of files": get("/v1/containers/{container}/files?path=a", STRANGE, "path", "path"),
    "an unknown file": get(
        "/v1/containers/{container}/files/cfile_1", "container_file_not_found", "file_id", "cfile_1", 404
    ),
    "what an unknown file has": get(
        "/v1/containers/{container}/files/cfile_1/content", "container_file_not_found", "file_id", "cfile_1", 404
    ),
    "a file by a path": get("/v1/containers/{container}/files/..%2F..%2Fetc%2Fpasswd", None, None, "Invalid URL", 404),
    "nobody's file": get(f"/v1/containers/{NOBODY}/files/{{file}}", "container_not_found", "container_id", NOBODY, 404),
    "a file of a deleted container": get(
        "/v1/containers/{gone}/files/{file}", "container_not_found", "container_id", "not found", 404
    ),
    "an unknown file that is deleted": delete(
        "/v1/containers/{container}/files/cfile_1", "container_file_not_found", "file_id", "cfile_1"
    ),
}

HOSTED_TABLES = (SERVERS, CODES, SEARCHES, APPROVALS, CONTAINERS, FILES)
HOSTED: Table = {name: bad for table in HOSTED_TABLES for name, bad in table.items()}
"""All of them."""
