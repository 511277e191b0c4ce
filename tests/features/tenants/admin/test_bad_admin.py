"""Bad input of the admin API: each is refused in the envelope, names what is wrong, and changes nothing."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from service.errors import InvalidRequest
from service.features.tenants.permissions import MAX_LISTED, SCOPES
from service.features.tenants.records import MAX_NAME_CHARS
from service.features.tenants.settings import MAX_LIMIT
from service.features.tenants.shapes import MAX_SECONDS, read_key, read_limits
from tests.support.service.process import MODEL, ServiceProcess

ADMIN = "an-administrators-key-of-the-settings"
HERE = "/v1/organization"


class Known(NamedTuple):
    """What there is to be asked for: a project, an account and a key in it, and all of that again."""

    project: str
    account: str
    key: str
    other: str
    gone: str


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    process = ServiceProcess(tmp_path_factory.mktemp("admin"), admin_key=ADMIN)
    yield process
    process.stop()


@pytest.fixture(scope="module")
def known(service: ServiceProcess) -> Known:
    """Two projects, one archived one, an account and a key."""

    def post(path: str, **body: Any) -> Any:
        answer = service.http(ADMIN).post(f"{HERE}{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    project, other, gone = (post("/projects", name=name)["id"] for name in ("one", "other", "gone"))
    account = post(f"/projects/{project}/service_accounts", name="web")
    post(f"/projects/{gone}/archive")
    return Known(project, account["id"], account["api_key"]["id"], other, gone)


DEEP = msgspec.Raw(b"[" * 5000 + b"]" * 5000)
ACCOUNTS, KEYS = "/projects/{project}/service_accounts", "/projects/{project}/api_keys"
ACCOUNT, KEY = f"{ACCOUNTS}/{{account}}", f"{KEYS}/{{key}}"
MODELS, LIMITS = "/projects/{project}/model_permissions", "/projects/{project}/rate_limits"
LIMIT = f"{LIMITS}/rl-all"
SINCE = "/usage/completions?start_time=1730000000"
NAMED = ("/projects", "/projects/{project}", ACCOUNTS, ACCOUNT, "/admin_api_keys")
LISTS = ("/projects", ACCOUNTS, KEYS, "/admin_api_keys", "/audit_logs", LIMITS)

Fault = tuple[str, Any, str, str]
"""A fault in words, a body or a query, and the code and the param of the refusal."""

NAMES: list[Fault] = [
    ("no name", {}, "missing_required_parameter", "name"),
    ("a name of blanks", {"name": "  \t "}, "invalid_value", "name"),
    ("a name with a turn of the text", {"name": "a\u202eb"}, "invalid_value", "name"),
    ("a name that is too long", {"name": "n" * (MAX_NAME_CHARS + 1)}, "invalid_value", "name"),
    ("a name that is deep", {"name": DEEP}, "invalid_type", "name"),
    ("a member that nobody knows", {"name": "a", "wibble": 1}, "unknown_parameter", "wibble"),
]
BODIES: list[tuple[str, bytes, str]] = [
    ("no body", b"", "invalid_json"),
    ("a list", b"[]", "invalid_type"),
    ("a deep body", b'{"wibble": ' + b"[" * 5000 + b"]" * 5000 + b"}", "unknown_parameter"),
]
ENDS: dict[str, dict[str, Any]] = {ACCOUNTS: {"name": "a"}, f"{ACCOUNT}/api_keys": {}, KEY: {}}
SECONDS: list[tuple[str, Any, str]] = [
    ("at once", 0, "invalid_value"),
    ("beyond ten years", MAX_SECONDS + 1, "invalid_value"),
    ("that is a text", "soon", "invalid_type"),
]
OF_KEYS: list[Fault] = [
    ("no such scope", {"scopes": ["api.everything"]}, "invalid_value", "scopes"),
    ("too many scopes", {"scopes": [*SCOPES, *SCOPES]}, "invalid_value", "scopes"),
    ("a scope that is none", {"scopes": [5]}, "invalid_type", "scopes[0]"),
    ("no limits", {"limits": {}}, "missing_required_parameter", "limits.max_requests_per_1_minute"),
    ("limits below 0", {"limits": {"max_parallel_responses": -1}}, "invalid_value", "limits.max_parallel_responses"),
]
PAGES: list[Fault] = [
    ("a page of none", "limit=0", "invalid_value", "limit"),
    ("a page of too many", "limit=101", "invalid_value", "limit"),
    ("a page behind nothing", "after=nobody", "invalid_value", "after"),
    ("a page of what nobody knows", "wibble=1", "unknown_parameter", "wibble"),
]
OF_LIMITS: list[Fault] = [
    ("below 0", {"max_requests_per_1_minute": -1}, "invalid_value", "max_requests_per_1_minute"),
    ("too many", {"max_tokens_per_1_month": MAX_LIMIT + 1}, "invalid_value", "max_tokens_per_1_month"),
    ("yes", {"max_parallel_responses": True}, "invalid_type", "max_parallel_responses"),
    ("by day", {"max_requests_per_1_day": 5}, "unsupported_parameter", "max_requests_per_1_day"),
    ("none", {}, "missing_required_parameter", "max_requests_per_1_minute"),
    ("before now", {"max_requests_per_-1_minute": 1}, "unknown_parameter", "max_requests_per_-1_minute"),
]
OF_MODELS: list[Fault] = [
    ("no mode", {"model_ids": []}, "missing_required_parameter", "mode"),
    ("too many", {"mode": "allow_list", "model_ids": ["m"] * (MAX_LISTED + 1)}, "invalid_value", "model_ids"),
    ("two lines", {"mode": "allow_list", "model_ids": ["a\nb"]}, "invalid_value", "model_ids"),
    ("a number", {"mode": "deny_list", "model_ids": [5]}, "invalid_type", "model_ids[0]"),
]
OF_USAGE: list[Fault] = [
    ("an end before its start", "end_time=1729999999", "invalid_value", "end_time"),
    ("too many days", "limit=32", "invalid_value", "limit"),
    ("users", "group_by[]=user_id", "unsupported_parameter", "group_by[]"),
    ("groups that nobody knows", "group_by[]=tenant", "invalid_value", "group_by[]"),
    ("too many projects", "&".join(f"project_ids[]={n}" for n in range(101)), "invalid_value", "project_ids[]"),
    ("a page of an hour in a day", "page=page_1730005200", "invalid_value", "page"),
]

Case = tuple[str, str, bytes | dict[str, Any] | None, int, str | None, str | None]
"""A method, a path with the names of what is known, a body; the status, the code and the param of the refusal."""

OTHERS: dict[str, Case] = {
    "a weight of nothing": ("POST", "/projects", {"name": "a", "weight": 0}, 400, "invalid_value", "weight"),
    "a weight too large": ("POST", "/projects/{project}", {"weight": 1000.5}, 400, "invalid_value", "weight"),
    "an account of a weight": ("POST", ACCOUNTS, {"name": "a", "weight": 2}, 400, "unknown_parameter", "weight"),
    "a role of owners": ("POST", ACCOUNTS, {"name": "a", "role": "owner"}, 400, "unsupported_parameter", "role"),
    "a region": ("POST", "/projects", {"name": "a", "residency": "eu"}, 400, "unsupported_parameter", "residency"),
    "a key's new name": ("POST", KEY, {"name": "b"}, 400, "unsupported_parameter", "name"),
    "an administrator's scopes": (
        *("POST", "/admin_api_keys", {"name": "a", "scopes": [SCOPES[0]]}, 400),
        *("unsupported_parameter", "scopes"),
    ),
    "an end without a key": (
        *("POST", ACCOUNTS, {"name": "a", "create_service_account_only": True, "expires_in_seconds": 5}, 400),
        *("invalid_value", "expires_in_seconds"),
    ),
    "what is archived": ("POST", "/projects/{gone}", {"name": "a"}, 400, None, None),
    "an account of what is archived": ("POST", "/projects/{gone}/service_accounts", {"name": "a"}, 400, None, None),
    "archiving what is archived": ("POST", "/projects/{gone}/archive", None, 400, None, None),
    "models of what is archived": (
        *("POST", "/projects/{gone}/model_permissions", {"mode": "deny_list", "model_ids": []}, 400, None, None),
    ),
    "limits of what is archived": ("DELETE", "/projects/{gone}/rate_limits/rl-all", None, 400, None, None),
    "a log of no time": ("GET", "/audit_logs?effective_at[gt]=x", None, 400, "invalid_value", "effective_at[gt]"),
    "a log of emails": ("GET", "/audit_logs?actor_emails[]=a", None, 400, "unknown_parameter", "actor_emails[]"),
    "a log behind no entry": ("GET", "/audit_logs?after=audit_log-007", None, 400, "invalid_value", "after"),
    "a log before no entry": ("GET", "/audit_logs?before=audit_log-1-0", None, 400, "invalid_value", "before"),
    "usage since never": ("GET", "/usage/completions", None, 400, "missing_required_parameter", "start_time"),
    "usage of embeddings": ("GET", "/usage/embeddings?start_time=5", None, 404, None, None),
    "users": ("GET", "/users", None, 404, None, None),
    "deleting a project": ("DELETE", "/projects/{project}", None, 405, None, None),
}
UNKNOWN = (
    *(("GET", "/projects/nobody"), ("POST", "/projects/nobody/archive"), ("GET", "/projects/{account}")),
    *(("GET", f"{ACCOUNTS}/{{key}}"), ("GET", f"{KEYS}/{{account}}"), ("GET", f"{KEYS}/" + "x" * 5000)),
    *(("GET", "/projects/{other}/service_accounts/{account}"), ("DELETE", "/projects/{other}/api_keys/{key}")),
    *(("DELETE", "/admin_api_keys/{key}"), ("GET", f"{LIMITS}/rl-nobody"), ("DELETE", f"{LIMITS}/rl-{MODEL}")),
    *(("DELETE", f"{LIMITS}/rl-all/x"), ("GET", "/projects/nobody/model_permissions")),
)
"""Routes of nothing that is there, or in this project."""


def _cases() -> Iterator[tuple[str, Case]]:
    for path in (*NAMED, MODELS, LIMIT):
        for what, raw, code in BODIES:
            yield f"{path}: {what}", ("POST", path, raw, 400, code, "wibble" if b"wibble" in raw else None)
    for path, rest in ENDS.items():
        for what, seconds, code in SECONDS:
            body = {**rest, "expires_in_seconds": seconds}
            yield f"{path}: an end {what}", ("POST", path, body, 400, code, "expires_in_seconds")
    sent = dict.fromkeys(NAMED, NAMES) | {f"{ACCOUNT}/api_keys": OF_KEYS, KEY: OF_KEYS}
    for path, faults in (sent | {LIMIT: OF_LIMITS, MODELS: OF_MODELS}).items():
        for what, body, code, param in faults:
            yield f"{path}: {what}", ("POST", path, body, 400, code, param)
    asked = {f"{path}?": PAGES for path in LISTS} | {f"{SINCE}&": OF_USAGE}
    for path, faults in asked.items():
        for what, query, code, param in faults:
            yield f"{path}: {what}", ("GET", f"{path}{query}", None, 400, code, param)
    for method, path in UNKNOWN:
        yield f"{method} {path[:60]}", (method, path, None, 404, "not_found", None)


CASES = dict(_cases()) | OTHERS


def test_bad_input_is_refused_by_name_and_changes_nothing(service: ServiceProcess, known: Known) -> None:
    before = kept(service)
    for name, (method, path, body, status, code, param) in CASES.items():
        content = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json"} if method == "POST" else {}
        url = HERE + path.format(**known._asdict())
        refusal = service.http(ADMIN).request(method, url, content=content, headers=headers)
        check(name, refusal, status, code, param)
    assert kept(service) == before


def test_a_number_out_of_bounds_is_refused_with_the_way_to_have_none() -> None:
    for seconds in (0, MAX_SECONDS + 1):
        with pytest.raises(InvalidRequest, match=f"1 to {MAX_SECONDS}; without it, the key never expires"):
            read_key(msgspec.json.encode({"expires_in_seconds": seconds}))
    for most in (-1, MAX_LIMIT + 1):
        with pytest.raises(InvalidRequest, match=f"0 to {MAX_LIMIT}, or null for no limit"):
            read_limits(msgspec.json.encode({"max_parallel_responses": most}))


def kept(service: ServiceProcess) -> dict[bytes, Any]:
    """All that the registry has, but for when keys were used."""
    with service.redis() as redis:
        shown = {b"hash": redis.hgetall, b"zset": lambda key: redis.zrange(key, 0, -1)}
        keys = [*redis.keys("*:registry"), *redis.keys("*:registry:*"), *redis.keys("*:audit-*")]
        return {key: shown[redis.type(key)](key) for key in keys}


def check(name: str, refusal: httpx.Response, status: int, code: str | None, param: str | None) -> None:
    error = refusal.json()["error"]
    assert (refusal.status_code, error["code"], error["param"]) == (status, code, param), (name, error)
    assert error["type"] == "invalid_request_error", name
    assert 0 < len(error["message"]) < 1000, name
    assert refusal.headers["x-should-retry"] == "false", name
