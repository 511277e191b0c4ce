"""The rights of a project and of a key: which models a project may use, and the scopes of a key. Pure.

A model may have several names, and any of them means it. For a project, a model that it may not use is not there.
Scopes have the names that OpenAI's keys have for them. A key without scopes may do all but administer. An
administrator's key administers, and does nothing else.
"""

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from service.entrance import not_permitted
from service.errors import brief, invalid_value, not_allowed

# --- models ---

ListMode = Literal["allow_list", "deny_list"]

MAX_LISTED = 128
"""How many models a list may have."""

MAX_MODEL_CHARS = 256


class ModelPermissions(msgspec.Struct, frozen=True):
    """A list of models, by any of their names, and whether only they may be used, or all but they."""

    mode: ListMode
    ids: tuple[str, ...] = ()

    def allow(self, names: Sequence[str]) -> bool:
        """Whether the model of these names may be used."""
        listed = any(name in self.ids for name in names)
        return listed == (self.mode == "allow_list")


ALL = ModelPermissions("deny_list")
"""The permissions of a project that nobody gave a list."""


def read_permissions(mode: str, ids: Sequence[str]) -> ModelPermissions:
    """The wished list, with each name once; models that aren't served may be on it. Raises InvalidRequest."""
    if mode not in ("allow_list", "deny_list"):
        raise invalid_value(
            "mode",
            mode,
            "It is 'allow_list', which allows only the models on the list, or 'deny_list', which allows all others.",
        )
    if len(ids) > MAX_LISTED:
        raise invalid_value("model_ids", len(ids), f"A list may have {MAX_LISTED} models.")
    for each in ids:
        if not 0 < len(each) <= MAX_MODEL_CHARS or not each.isprintable():
            raise not_allowed(
                f"Invalid value for 'model_ids': '{brief(each)}'. It should have the names of models, as "
                f"GET /v1/models shows them, of 1 to {MAX_MODEL_CHARS} characters.",
                "model_ids",
            )
    return ModelPermissions(mode, tuple(dict.fromkeys(ids)))


# --- scopes ---

READ_ALL = "api.all.read"
"""All that changes nothing."""

SCOPES = (
    READ_ALL,
    *("api.responses.read", "api.responses.write"),
    *("api.conversations.read", "api.conversations.write"),
    *("api.containers.read", "api.containers.write"),
    *("api.files.read", "api.files.write"),
    *("api.model.read", "api.model.request"),
)
"""`api.model.request` is for what is passed on to the engine's server."""


def read_scopes(wanted: Collection[str]) -> tuple[str, ...]:
    """The scopes that a request names, each once. Raises InvalidRequest for one that there isn't."""
    if len(wanted) > len(SCOPES):
        raise invalid_value("scopes", len(wanted), f"There are {len(SCOPES)} of them.")
    made = tuple(dict.fromkeys(wanted))
    for each in made:
        if each not in SCOPES:
            raise not_allowed(
                f"Invalid value for 'scopes': '{brief(each)}'. Give some of {', '.join(SCOPES)}; none means all.",
                "scopes",
            )
    return made


def check_scope(scopes: tuple[str, ...], needed: str) -> None:
    """Raise ApiError 403 unless a key with these scopes may do what needs that one."""
    if not scopes or needed in scopes or (needed.endswith(".read") and READ_ALL in scopes):
        return
    raise not_permitted(needed, "Use a key with this scope, or have an administrator add it to this key.")
