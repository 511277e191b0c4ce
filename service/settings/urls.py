"""URLs in settings: which are right, and how they are shown. Never show a password or a key of one."""

import re
from urllib.parse import unquote, urlsplit

from service.ssrf import BY_NAME

MASK = "****"
_SECRET_VALUE = re.compile(r"([?&#;][^=&#\s]*(?:key|token|secret|pass|sig|auth|cred)[^=&#\s]*=)[^&#\s]*", re.IGNORECASE)

_CLIMBING = re.compile(r"(^|[/\\])\.{1,2}([/\\;]|$)")
"""A part of a path that some server takes for the folder above, or for the same one."""


def is_url(url: str) -> bool:
    """Whether a server may have this URL: HTTP or HTTPS, with a host, without a user and a fragment, and with no `.` or
    `..` in its path, which may lead out of what an operator allows.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    plain = url.isascii() and url.isprintable() and " " not in url and "\\" not in url
    named = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    climbs = _climbs(parts.path)
    return plain and named and not climbs and not parts.fragment and len(url) <= 2_048 and port != 0


def _climbs(path: str) -> bool:
    """Whether some server may take the path for one that leads elsewhere. It is unquoted as often as there is a quote;
    a result that is not UTF-8, or has a NUL, may be read in any way.
    """
    before = ""
    try:
        while path != before:
            before, path = path, unquote(path, errors="strict")
    except UnicodeDecodeError:
        return True
    return "\0" in path or bool(_CLIMBING.search(path))


def server_url(url: str, key_remedy: str) -> str:
    """An engine's server's URL, perhaps by name, without a slash at its end. Raises ValueError with `key_remedy`."""
    try:
        parts = urlsplit(url.removeprefix(BY_NAME))
        _ = parts.port
    except ValueError:
        raise ValueError("should be URLs such as http://10.0.0.5:8000, comma-separated") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"should be URLs that begin with http:// or https://, or {BY_NAME}http://, comma-separated")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"should have no user, password or query; {key_remedy}")
    return url.rstrip("/").removesuffix("/v1")


def check_url(url: str, remedy: str) -> None:
    """Raise ValueError for what is neither empty nor the URL of a server; `remedy` says where a key goes."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # whose words have a part of what may be a password
        raise ValueError("should be a URL whose port is a number up to 65535") from None
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("should be a URL that begins with http:// or https://")
    if parts.username or parts.password or parts.fragment:
        raise ValueError(f"should have no user, password or fragment; {remedy}")


def mask_secrets(text: str) -> str:
    """A text to be shown, without what may be secret in a URL: all that stands before an @ but its scheme, and the
    values in a query whose names say so. A path of the file system is as it was.
    """
    if text.startswith("/"):
        return text
    before, at, behind = text.rpartition("@")
    scheme, slashes, _ = before.partition("://")
    whole = f"{scheme if slashes else ''}{slashes}{MASK}@{behind}" if at else text
    return _SECRET_VALUE.sub(rf"\g<1>{MASK}", whole)


def without_password(url: str) -> str:
    """`url` with its passwords masked, in the user part and in the query."""
    masked = re.sub(r"(://[^/?#@:]*:).*@", rf"\g<1>{MASK}@", url)
    return re.sub(r"(?i)([?&]\w*password=)[^&]*", rf"\g<1>{MASK}", masked)
