"""Which models a project may use: those of a list, or all but those of it. Pure.

A model may have several names, and any of them means it. For a project, a model that it may not use is not there.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from service.errors import InvalidRequest, invalid_value, shown

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
    """The wished list, with each name once; models that aren't served may be on it. Raises
    InvalidRequest.
    """
    if mode not in ("allow_list", "deny_list"):
        raise invalid_value(
            "mode",
            mode,
            "It may be 'allow_list', with which only the models on the list may be used, "
            "or 'deny_list', with which all others may.",
        )
    if len(ids) > MAX_LISTED:
        raise invalid_value("model_ids", len(ids), f"A list may have {MAX_LISTED} models.")
    for each in ids:
        if not 0 < len(each) <= MAX_MODEL_CHARS or not each.isprintable():
            raise InvalidRequest(
                f"Invalid value for 'model_ids': '{shown(each)}'. It should have the names of models, as "
                f"GET /v1/models shows them, of 1 to {MAX_MODEL_CHARS} characters.",
                code="invalid_value",
                param="model_ids",
            )
    return ModelPermissions(mode, tuple(dict.fromkeys(ids)))
