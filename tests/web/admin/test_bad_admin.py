"""Bad input of the admin API: each is refused in the envelope, names what is wrong, and changes nothing."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest

from service.settings.core import MAX_LIMIT
from service.tenants.permissions import MAX_LISTED, SCOPES
from service.tenants.records import MAX_NAME_CHARS
from service.web.admin.shapes import MAX_SECONDS
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
    """A service with an administrator."""
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

NAMES: list[tuple[str, Any, str, str]] = [
    ("no name", {}, "missing_required_parameter", "name"),
    ("a name of blanks", {"name": "  \t "}, "invalid_value", "name"),
    ("a name of two lines", {"name": "a\nb"}, "invalid_value", "name"),
    ("a name with a turn of the text", {"name": "a\u202eb"}, "invalid_value", "name"),
    ("a name that is too long", {"name": "n" * (MAX_NAME_CHARS + 1)}, "invalid_value", "name"),
    ("a name that is a number", {"name": 5}, "invalid_type", "name"),
    ("a name that is deep", {"name": DEEP}, "invalid_type", "name"),
    ("a member that nobody knows", {"name": "a", "wibble": 1}, "unknown_parameter", "wibble"),
    ("a role of owners", {"name": "a", "role": "owner"}, "unsupported_parameter", "role"),
]
SECONDS: list[tuple[str, Any, str, str]] = [
    ("an end at once", 0, "invalid_value", "expires_in_seconds"),
    ("an end beyond ten years", MAX_SECONDS + 1, "invalid_value", "expires_in_seconds"),
    ("an end beyond numbers", 10**40, "invalid_value", "expires_in_seconds"),
    ("an end that is a text", "soon", "invalid_type", "expires_in_seconds"),
]
BODIES: list[tuple[str, bytes, str]] = [
    ("no body", b"", "invalid_json"),
    ("no UTF-8", b'{"name": "\xff"}', "invalid_json"),
    ("a lone surrogate", b'{"name": "\\ud800"}', "invalid_json"),
    ("a list", b"[]", "invalid_type"),
    ("a deep body", b'{"wibble": ' + b"[" * 5000 + b"]" * 5000 + b"}", "unknown_parameter"),
]
PAGES: list[tuple[str, str, str, str]] = [
    ("a page of none", "limit=0", "invalid_value", "limit"),
    ("a page of too many", "limit=101", "invalid_value", "limit"),
    ("a page behind nothing", "after=nobody", "invalid_value", "after"),
    ("a page of what nobody knows", "wibble=1", "unknown_parameter", "wibble"),
]

WEIGHTS: list[tuple[str, Any, str]] = [
    ("a weight of nothing", 0, "invalid_value"),
    ("a weight that is too large", 1000.5, "invalid_value"),
    ("a weight that is a text", "3", "invalid_type"),
]

Case = tuple[str, str, bytes | dict[str, Any] | None, int, str | None, str | None]
"""A method, a path with the names of what is known, a body; the status, the code and the param of the refusal."""


def _cases() -> Iterator[tuple[str, Case]]:
    accounts, keys = "/projects/{project}/service_accounts", "/projects/{project}/api_keys"
    creating = {"a project": "/projects", "an account": accounts, "an administrator's key": "/admin_api_keys"}
    renaming = {"a project's": "/projects/{project}", "an account's": f"{accounts}/{{account}}"}
    for whose, path in (creating | renaming).items():
        for what, body, code, param in NAMES:
            if "role" not in body:
                yield f"{whose}: {what}", ("POST", path, body, 400, code, param)
        for what, raw, code in BODIES:
            yield f"{whose}: {what}", ("POST", path, raw, 400, code, "wibble" if b"wibble" in raw else None)
    for whose, path in {"a project": "/projects", "a project's": "/projects/{project}"}.items():
        for what, weight, code in WEIGHTS:
            yield f"{whose}: {what}", ("POST", path, {"name": "a", "weight": weight}, 400, code, "weight")
    no_number = b'{"name": "a", "weight": NaN}'
    yield "a project: a weight that is no number", ("POST", "/projects", no_number, 400, "invalid_json", None)
    weightless = ("POST", "/projects", {"weight": 2}, 400, "missing_required_parameter", "name")
    yield "a project of which there is only a weight", weightless
    yield "an account of a weight", ("POST", accounts, {"name": "a", "weight": 2}, 400, "unknown_parameter", "weight")
    for what, body, code, param in NAMES:
        if "role" in body:
            yield f"an account: {what}", ("POST", accounts, body, 400, code, param)
            yield f"an account's: {what}", ("POST", f"{accounts}/{{account}}", body, 400, code, param)
    ends = {
        "an account": (accounts, {"name": "a"}),
        "a key": (f"{accounts}/{{account}}/api_keys", {}),
        "a key's": (f"{keys}/{{key}}", {}),
        "an administrator's key": ("/admin_api_keys", {"name": "a"}),
    }
    for whose, (path, rest) in ends.items():
        for what, seconds, code, param in SECONDS:
            yield f"{whose}: {what}", ("POST", path, {**rest, "expires_in_seconds": seconds}, 400, code, param)
    for whose, path in {"a key": f"{accounts}/{{account}}/api_keys", "a key's": f"{keys}/{{key}}"}.items():
        yield f"{whose}: no such scope", ("POST", path, {"scopes": ["api.everything"]}, 400, "invalid_value", "scopes")
        many = {"scopes": [*SCOPES, *SCOPES]}
        yield f"{whose}: too many scopes", ("POST", path, many, 400, "invalid_value", "scopes")
        yield f"{whose}: scopes that are no list", ("POST", path, {"scopes": "all"}, 400, "invalid_type", "scopes")
        yield f"{whose}: a scope that is none", ("POST", path, {"scopes": [5]}, 400, "invalid_type", "scopes[0]")
    lists = {"projects": "/projects", "accounts": accounts, "keys": keys, "administrators": "/admin_api_keys"}
    for whose, path in (lists | {"audit": "/audit_logs"}).items():
        for what, query, code, param in PAGES:
            yield f"{whose}: {what}", ("GET", f"{path}?{query}", None, 400, code, param)
    yield from _others(accounts, keys)


def _others(accounts: str, keys: str) -> Iterator[tuple[str, Case]]:
    for method, path in (
        ("GET", "/projects/nobody"),
        ("POST", "/projects/nobody/archive"),
        ("GET", "/projects/{account}"),
        ("GET", f"{accounts}/{{key}}"),
        ("GET", f"{keys}/{{account}}"),
        ("GET", "/projects/{other}/service_accounts/{account}"),
        ("DELETE", "/projects/{other}/service_accounts/{account}"),
        ("GET", "/projects/{other}/api_keys/{key}"),
        ("DELETE", "/projects/{other}/api_keys/{key}"),
        ("GET", "/admin_api_keys/{key}"),
        ("DELETE", "/admin_api_keys/{key}"),
        ("GET", f"{keys}/" + "x" * 5000),
    ):
        yield f"{method} {path[:60]}", (method, path, None, 404, "not_found", None)
    for whose, path in {"a project": "/projects/{gone}", "an account": "/projects/{gone}/service_accounts"}.items():
        yield f"{whose} of what is archived", ("POST", path, {"name": "a"}, 400, None, None)
    yield "archiving what is archived", ("POST", "/projects/{gone}/archive", None, 400, None, None)
    for member in ("geography", "external_key_id", "residency"):
        body = {"name": "a", member: "eu"}
        yield f"a project with {member}", ("POST", "/projects", body, 400, "unsupported_parameter", member)
    alone = {"name": "a", "create_service_account_only": True, "expires_in_seconds": 5}
    yield "an end without a key", ("POST", accounts, alone, 400, "invalid_value", "expires_in_seconds")
    half = {"name": "a", "create_service_account_only": "yes"}
    yield "half an account", ("POST", accounts, half, 400, "invalid_type", "create_service_account_only")
    yield "a key's new name", ("POST", f"{keys}/{{key}}", {"name": "b"}, 400, "unsupported_parameter", "name")
    scoped = {"name": "a", "scopes": [SCOPES[0]]}
    yield "an administrator with scopes", ("POST", "/admin_api_keys", scoped, 400, "unsupported_parameter", "scopes")
    for query in ("effective_at[gt]=x", "effective_at[lte]=-5", f"effective_at[lt]={10**30}"):
        name = query.partition("=")[0]
        yield f"a log of {query[:30]}", ("GET", f"/audit_logs?{query}", None, 400, "invalid_value", name)
    for place in ("x", "0", "007", "-1", "1-0", "9" * 17):
        wrong = ("GET", f"/audit_logs?after=audit_log-{place}", None, 400, "invalid_value", "after")
        yield f"a log behind no entry: {place}", wrong
        wrong = ("GET", f"/audit_logs?before=audit_log-{place}", None, 400, "invalid_value", "before")
        yield f"a log before no entry: {place}", wrong
    yield "a log of emails", ("GET", "/audit_logs?actor_emails[]=a", None, 400, "unknown_parameter", "actor_emails[]")
    yield from _models("/projects/{project}/model_permissions")
    yield "users", ("GET", "/users", None, 404, None, None)
    yield "deleting a project", ("DELETE", "/projects/{project}", None, 405, None, None)


def _models(path: str) -> Iterator[tuple[str, Case]]:
    many = ["m"] * (MAX_LISTED + 1)
    for what, body, code, param in (
        ("no mode", {"model_ids": []}, "missing_required_parameter", "mode"),
        ("too many models", {"mode": "allow_list", "model_ids": many}, "invalid_value", "model_ids"),
        ("a model of two lines", {"mode": "allow_list", "model_ids": ["a\nb"]}, "invalid_value", "model_ids"),
        ("a model that is a number", {"mode": "deny_list", "model_ids": [5]}, "invalid_type", "model_ids[0]"),
        ("what nobody knows", {"mode": "deny_list", "model_ids": [], "wibble": 1}, "unknown_parameter", "wibble"),
    ):
        yield f"models: {what}", ("POST", path, body, 400, code, param)
    for what, raw, code in BODIES:
        if b"name" not in raw:
            yield f"models: {what}", ("POST", path, raw, 400, code, "wibble" if b"wibble" in raw else None)
    listed = {"mode": "deny_list", "model_ids": []}
    for method, sent in {"GET": None, "POST": listed, "DELETE": None}.items():
        yield f"models of nobody: {method}", (method, path.format(project="nobody"), sent, 404, "not_found", None)
    for method, sent in {"POST": listed, "DELETE": None}.items():
        yield f"models of what is archived: {method}", (method, path.format(project="{gone}"), sent, 400, None, None)


def _usage() -> Iterator[tuple[str, Case]]:
    """What is asked for of usage, and isn't right."""
    path, now = "/usage/completions?start_time=1730000000", "start_time=1730000000"
    yield "usage since never", ("GET", "/usage/completions", None, 400, "missing_required_parameter", "start_time")
    for what, query, code, param in (
        ("a start that is a text", "start_time=yesterday", "invalid_value", "start_time"),
        ("an end before its start", f"{now}&end_time=1729999999", "invalid_value", "end_time"),
        ("too many days", f"{now}&limit=32", "invalid_value", "limit"),
        ("users", f"{now}&group_by[]=user_id", "unsupported_parameter", "group_by[]"),
        ("groups that nobody knows", f"{now}&group_by[]=tenant", "invalid_value", "group_by[]"),
        (
            "too many projects",
            now + "".join(f"&project_ids[]={n}" for n in range(101)),
            "invalid_value",
            "project_ids[]",
        ),
        ("too many keys", now + "".join(f"&api_key_ids[]={n}" for n in range(101)), "invalid_value", "api_key_ids[]"),
        ("a page that is none", f"{now}&page=next", "invalid_value", "page"),
        ("a page of an hour in a day", f"{now}&page=page_1730005200", "invalid_value", "page"),
        ("a page behind its end", f"{now}&end_time=1730100000&page=page_1730160000", "invalid_value", "page"),
    ):
        yield f"usage: {what}", ("GET", f"/usage/completions?{query}", None, 400, code, param)
    long = "x" * 300
    yield (
        "usage: a project's long name",
        ("GET", f"{path}&project_ids[]={long}", None, 400, "invalid_value", "project_ids[]"),
    )
    yield "usage of embeddings", ("GET", "/usage/embeddings?start_time=5", None, 404, None, None)
    yield "usage is only read", ("POST", "/usage/completions", {}, 405, None, None)


def _rate_limits() -> Iterator[tuple[str, Case]]:
    """Limits that aren't right, of what isn't there, and pages of them."""
    limits = "/projects/{project}/rate_limits"
    path, one = f"{limits}/rl-all", {"max_requests_per_1_minute": 1}
    for name in ("max_requests_per_1_minute", "max_tokens_per_1_month", "max_parallel_responses"):
        for what, value, code in (
            ("below 0", -1, "invalid_value"),
            ("too many", MAX_LIMIT + 1, "invalid_value"),
            ("a text", "5", "invalid_type"),
            ("yes", True, "invalid_type"),
        ):
            yield f"limits: {name} {what}", ("POST", path, {name: value}, 400, code, name)
    for name in (
        "max_requests_per_1_day",
        "batch_1_day_max_input_tokens",
        "max_images_per_1_minute",
        "max_audio_megabytes_per_1_minute",
    ):
        yield f"limits: {name}", ("POST", path, one | {name: 5}, 400, "unsupported_parameter", name)
    yield "limits: none", ("POST", path, {}, 400, "missing_required_parameter", "max_requests_per_1_minute")
    yield "limits: nobody knows", ("POST", path, one | {"wibble": 1}, 400, "unknown_parameter", "wibble")
    negative = "max_requests_per_-1_minute"
    yield "limits: of a window before now", ("POST", path, {negative: 1}, 400, "unknown_parameter", negative)
    for what, raw, code in BODIES:
        if b"name" not in raw:
            yield f"limits: {what}", ("POST", path, raw, 400, code, "wibble" if b"wibble" in raw else None)
    for method, sent in {"GET": None, "POST": one, "DELETE": None}.items():
        for id in ("rl-nobody", f"rl-{MODEL}", "rl-", "all", "nobody", "rl-all/x", "rl-{key}", "rl-" + "m" * 5000):
            yield f"limits: {method} of {id[:20]}", (method, f"{limits}/{id}", sent, 404, "not_found", None)
        elsewhere = path.format(project="nobody")
        yield f"limits of nobody: {method}", (method, elsewhere, sent, 404, "not_found", None)
        if method != "GET":
            gone = path.format(project="{gone}")
            yield f"limits of what is archived: {method}", (method, gone, sent, 400, None, None)
    for what, query, code, param in PAGES:
        yield f"limits: {what}", ("GET", f"{limits}?{query}", None, 400, code, param)
    before = ("GET", f"{limits}?before=rl-nobody", None, 400, "invalid_value", "before")
    yield "limits: a page before nothing", before
    yield "limits of all projects", ("GET", "/rate_limits", None, 404, None, None)
    yield "limits: replaced", ("PUT", path, None, 405, None, None)
    for whose, at in {
        "a key": "/projects/{project}/service_accounts/{account}/api_keys",
        "a key's": "/projects/{project}/api_keys/{key}",
    }.items():
        for what, value, code, param in (
            ("nothing", {}, "missing_required_parameter", "limits.max_requests_per_1_minute"),
            ("below 0", {"max_parallel_responses": -1}, "invalid_value", "limits.max_parallel_responses"),
            ("nobody knows", {"wibble": 1}, "unknown_parameter", "limits.wibble"),
        ):
            yield f"{whose}: limits of {what}", ("POST", at, {"limits": value}, 400, code, param)


CASES = dict(_cases()) | dict(_usage()) | dict(_rate_limits())


def test_bad_input_is_refused_by_name_and_changes_nothing(service: ServiceProcess, known: Known) -> None:
    before = kept(service)
    for name, (method, path, body, status, code, param) in CASES.items():
        content = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json"} if method == "POST" else {}
        url = HERE + path.format(**known._asdict())
        refusal = service.http(ADMIN).request(method, url, content=content, headers=headers)
        check(name, refusal, status, code, param)
    assert kept(service) == before


def kept(service: ServiceProcess) -> dict[bytes, Any]:
    """All that the registry has, but for when keys were used."""
    with service.redis() as redis:
        shown = {b"hash": redis.hgetall, b"zset": lambda key: redis.zrange(key, 0, -1)}
        keys = [*redis.keys("*:registry"), *redis.keys("*:registry:*"), *redis.keys("*:audit-*")]
        return {key: shown[redis.type(key)](key) for key in keys}


def check(name: str, refusal: httpx.Response, status: int, code: str | None, param: str | None) -> None:
    """It is in the envelope, as all are."""
    error = refusal.json()["error"]
    assert (refusal.status_code, error["code"], error["param"]) == (status, code, param), (name, error)
    assert error["type"] == "invalid_request_error", name
    assert 0 < len(error["message"]) < 1000, name
    assert refusal.headers["x-should-retry"] == "false", name
