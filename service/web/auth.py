"""The tenant of a request: the key that it presents, and what a service without keys still refuses.

Without keys everybody on this machine is the tenant `default`, and what a web page could send from a browser is
refused: another Host (DNS rebinding) and what is not JSON (a form needs no permission to cross origins). A POST with
neither a body nor a type, as Node's SDK cancels a response, is from no page: a browser names the origin of every POST.
"""

from starlette.types import Scope

from service.entrance import Entrance, Entry, WrongKey, not_permitted
from service.errors import ApiError, InvalidRequest
from service.settings.core import DEFAULT_TENANT
from service.settings.keys import Keys

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

ADMINISTRATION = "/v1/organization"
CONSOLE = "/console/api"

HEALTH = f"{CONSOLE}/health"
"""The path of the console's API that only administrators may use."""

KEY = b"x-api-key"
"""The header in which Anthropic's clients send a key."""

SINGLE = (b"authorization", KEY, b"host", b"content-type", b"content-encoding", b"openai-project")
"""Headers that a request has once, or not at all."""

TRANSFER = b"transfer-encoding"

Headers = dict[bytes, bytes]


_SCOPES = (
    ("/responses", "api.responses"),
    ("/conversations", "api.conversations"),
    ("/containers", "api.containers"),
    ("/files", "api.files"),
    ("/models", "api.model"),
    ("/trees", "api.responses"),
    ("/jobs", "api.responses"),
    ("/turns", "api.responses"),
    ("/batches", "api.responses"),
    ("/trajectories", "api.responses"),
    ("/histories", "api.responses"),
)


def scope_of(method: str, path: str) -> str:
    """The scope that a request needs; `path` begins behind the version."""
    reads = method in ("GET", "HEAD", "OPTIONS")
    for start, name in _SCOPES:
        if path == start or path.startswith(f"{start}/"):
            return f"{name}.read" if reads else f"{name}.write"
    return "api.model.request"


async def enter(entrance: Entrance, headers: Headers, method: str, path: str) -> Entry:
    """The caller of a request. Raises ApiError: 401 for a key that opens nothing (WrongKey), 403 for one that doesn't
    open this, 503; StoreUnavailable.
    """
    if entrance.keys.open:
        return Entry(DEFAULT_TENANT)
    named = headers.get(b"openai-project", b"").decode("latin-1")
    entry, needed = await entrance.holder(_presented_key(headers), named), scope_of(method, behind_version(path))
    if path.startswith(ADMINISTRATION) or path == HEALTH:
        if not entry.administers:
            raise not_permitted("api.management", "Use an administrator's key: this one is a project's.")
    elif entry.administers:
        raise not_permitted(needed, "Use a project's key: this one is an administrator's, which only administers.")
    else:
        entry.require(needed)
    return entry


def behind_version(path: str) -> str:
    """A path without what versions and dialects begin with, or the console's API."""
    return path.removeprefix(CONSOLE) if path.startswith(CONSOLE) else path.partition("/v1")[2]


def check_scraper(keys: Keys, headers: Headers) -> None:
    """Refuse a caller that may not read the metrics: they show how much others use the service. Raises ApiError 401."""
    if keys.for_metrics:
        if not keys.opens_metrics(_presented_key(headers)):
            raise WrongKey
    elif not keys.open:
        raise _unauthorized_error(
            "/metrics is for the operator, so API keys don't open it. Set HARMONIUM_METRICS_KEY and send "
            "it as 'Authorization: Bearer METRICS_KEY'."
        )


def _presented_key(headers: Headers) -> bytes:
    """The key that a request presents. Raises ApiError 401 where it has none, or two."""
    if b"authorization" not in headers and KEY in headers:
        return headers[KEY].strip()
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    if not key or scheme.lower() != b"bearer":
        raise _unauthorized_error("You didn't provide an API key. Send it as 'Authorization: Bearer YOUR_KEY'.")
    if headers.get(KEY, key).strip() != key.strip():
        raise _unauthorized_error("The headers 'Authorization' and 'x-api-key' have different API keys. Send one.")
    return key.strip()


def check_headers(scope: Scope) -> None:
    """Refuse what a proxy in front may read otherwise: a header that says twice whose the request is, or what it has.

    Raises ApiError.
    """
    headers = dict(scope["headers"])
    if len(headers) < len(scope["headers"]):
        names = [name for name, _ in scope["headers"]]
        for name in SINGLE:
            if names.count(name) > 1:
                raise InvalidRequest(f"The header '{name.decode()}' came more than once. Send it once.")
    codings = []
    if TRANSFER in headers:
        codings = [value.strip().lower() for name, value in scope["headers"] if name == TRANSFER]
    if codings not in ([], [b"chunked"]):  # a proxy may undo what nothing here undoes (RFC 9112, section 6.1)
        raise ApiError(
            501,
            f"The Transfer-Encoding {b', '.join(codings)[:100].decode('latin-1')!r} is not supported. Send the body "
            "unencoded, or chunked.",
            code="unsupported_transfer_encoding",
        )
    if b"host" not in headers and scope["http_version"] == "1.1":
        raise InvalidRequest("The request has no Host header, which HTTP/1.1 demands (RFC 9112, section 3.2).")
    encoding = headers.get(b"content-encoding", b"identity").decode("latin-1")
    if encoding.strip().lower() != "identity":
        raise ApiError(
            415,
            f"The Content-Encoding {encoding[:100]!r} is not supported; send the body unencoded.",
            code="unsupported_media_type",
        )


def refuse_foreign(method: str, headers: Headers, *, uploads: bool = False) -> None:
    """Refuse what only a web page would send to a service without keys. A program may send forms where it `uploads`
    files; a page's form has an Origin. Raises ApiError.
    """
    host = headers.get(b"host", b"").decode("latin-1").lower()
    name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
    if name not in _LOCAL_NAMES:
        raise ApiError(
            403,
            f"The Host header {host[:100]!r} is not localhost. Without API keys this service answers only to "
            "localhost; set HARMONIUM_API_KEYS to serve others.",
            code="host_not_allowed",
        )
    if method == "POST":
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind == b"multipart/form-data" and uploads and b"origin" not in headers:
            return
        has_body = b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"
        if kind != b"application/json" and (kind or b"origin" in headers or has_body):
            wanted = "multipart/form-data; send a form" if uploads else "application/json; send JSON"
            raise ApiError(
                415,
                f"The Content-Type {kind.decode('latin-1')[:100]!r} is not {wanted}.",
                code="unsupported_media_type",
            )


def refuse_foreign_page(headers: Headers) -> None:
    """Refuse a WebSocket that a web page of another origin opens: no browser asks for permission. Raises ApiError."""
    origin, host = headers.get(b"origin"), headers.get(b"host", b"")
    if origin is not None and origin.lower() not in (b"http://" + host.lower(), b"https://" + host.lower()):
        raise ApiError(
            403,
            f"The Origin header {origin.decode('latin-1')[:100]!r} is not this service's. Without API keys no other "
            "page may open a WebSocket; set HARMONIUM_API_KEYS, and use a program.",
            code="origin_not_allowed",
        )


def _unauthorized_error(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key")
