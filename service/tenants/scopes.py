"""Scopes: what a key may do, by the names that OpenAI's keys have for it. Pure.

A key without scopes may do all but administer. An administrator's key administers, and does nothing else.
"""

from collections.abc import Iterable

from service.errors import ApiError, InvalidRequest, shown

READ_ALL = "api.all.read"
"""All that changes nothing."""

SCOPES = (
    READ_ALL,
    *("api.responses.read", "api.responses.write"),
    *("api.conversations.read", "api.conversations.write"),
    *("api.containers.read", "api.containers.write"),
    *("api.model.read", "api.model.request"),
)
"""`api.model.request` is for what is passed on: to the engine's server, and traces."""

MAX_SCOPES = len(SCOPES)

_BY_PATH = (
    ("/responses", "api.responses"),
    ("/conversations", "api.conversations"),
    ("/containers", "api.containers"),
    ("/models", "api.model"),
    ("/trees", "api.responses"),
    ("/jobs", "api.responses"),
    ("/turns", "api.responses"),
)


def read_scopes(wanted: Iterable[str]) -> tuple[str, ...]:
    """The scopes that a request names, each once. Raises InvalidRequest for one that there isn't."""
    made = tuple(dict.fromkeys(wanted))
    for each in made:
        if each not in SCOPES:
            raise InvalidRequest(
                f"Invalid value for 'scopes': '{shown(each)}'. It may have {', '.join(SCOPES)}; none is all of them.",
                code="invalid_value",
                param="scopes",
            )
    return made


def scope_of(method: str, path: str) -> str:
    """The scope that a request needs; `path` begins behind the version."""
    reads = method in ("GET", "HEAD", "OPTIONS")
    for start, name in _BY_PATH:
        if path == start or path.startswith(f"{start}/"):
            return f"{name}.read" if reads else f"{name}.write"
    return "api.model.request"


def check_scope(scopes: tuple[str, ...], needed: str) -> None:
    """Raise ApiError 403 unless a key with these scopes may do what needs that one."""
    if not scopes or needed in scopes or (needed.endswith(".read") and READ_ALL in scopes):
        return
    raise ApiError(
        403,
        f"You have insufficient permissions for this operation. Missing scopes: {needed}. "
        "Use a key that has it, or have an administrator give it to this one.",
        code="insufficient_permissions",
    )
