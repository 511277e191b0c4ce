"""Whose a request is: the key that it presents, and what a service without keys still refuses.

Without keys everybody on this machine is the tenant `default`, and what a web page could send from a browser is
refused: another Host (DNS rebinding) and what is not JSON (a form needs no permission to cross origins). A POST with
neither a body nor a type, as Node's SDK cancels a response, is from no page: a browser names the origin of every POST.
"""

from starlette.types import Scope

from service.errors import ApiError, InvalidRequest
from service.settings.core import DEFAULT_TENANT
from service.settings.keys import Keys

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

SINGLE = (b"authorization", b"host", b"content-type", b"content-encoding")
"""Headers that a request has once, or not at all."""

Headers = dict[bytes, bytes]


def tenant_of(keys: Keys, headers: Headers) -> str:
    """The tenant whose key the request presents. Raises ApiError 401."""
    if keys.open:
        return DEFAULT_TENANT
    tenant = keys.tenant(_presented(headers))
    if tenant is None:
        raise _wrong_key()
    return tenant


def check_scraper(keys: Keys, headers: Headers) -> None:
    """Refuse who may not read the metrics: they say how much others use the service. Raises ApiError 401."""
    if keys.for_metrics:
        if not keys.opens_metrics(_presented(headers)):
            raise _wrong_key()
    elif not keys.open:
        raise _unauthorized(
            "/metrics is for the operator of a service, so no API key opens it. Set HARMONIUM_METRICS_KEY and send "
            "it as 'Authorization: Bearer METRICS_KEY'."
        )


def _presented(headers: Headers) -> bytes:
    """The key that a request presents. Raises ApiError 401 where it has none."""
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    if not key or scheme.lower() != b"bearer":
        raise _unauthorized("You didn't provide an API key. Send it as 'Authorization: Bearer YOUR_KEY'.")
    return key.strip()


def check_headers(scope: Scope) -> None:
    """Refuse what a proxy in front may read otherwise: a header that says twice whose the request is, or what it has.

    Raises ApiError.
    """
    names = [name for name, _ in scope["headers"]]
    for name in SINGLE:
        if names.count(name) > 1:
            raise InvalidRequest(f"The header '{name.decode()}' came more than once. Send it once.")
    headers = dict(scope["headers"])
    if b"host" not in headers and scope["http_version"] == "1.1":
        raise InvalidRequest("The request has no Host header, which HTTP/1.1 demands (RFC 9112, section 3.2).")
    encoding = headers.get(b"content-encoding", b"identity").decode("latin-1")
    if encoding.strip().lower() != "identity":
        raise ApiError(
            415,
            f"The Content-Encoding {encoding[:100]!r} is not served; send the body as it is.",
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
            f"The Host header {host[:100]!r} is not localhost. Without API keys this service answers to localhost "
            "alone; set HARMONIUM_API_KEYS to serve others.",
            code="host_not_allowed",
        )
    if method == "POST":
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind == b"multipart/form-data" and uploads and b"origin" not in headers:
            return
        if kind != b"application/json" and (kind or b"origin" in headers or _has_body(headers)):
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
            f"The Origin header {origin.decode('latin-1')[:100]!r} is not that of this service. Without API keys no "
            "other page may open a WebSocket; set HARMONIUM_API_KEYS, and have a program open it.",
            code="origin_not_allowed",
        )


def _has_body(headers: Headers) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key")


def _wrong_key() -> ApiError:
    return _unauthorized("Incorrect API key provided. Check it, or ask who runs this service for one.")
