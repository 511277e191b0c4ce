"""Structural tags on their way to a server, which are looked at before it is asked. Pure.

Some servers end, or say that it is their own fault, where a tag is malformed. So one that can't be read is refused
here. What a server makes of one that can be read is for the server to say.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from service.engine.port import EngineRefused
from service.errors import InvalidRequest
from service.grammar.regex import unchecked_tree


def read_format(tag: str) -> Mapping[str, Any]:
    """The format of a structural tag. Raises EngineRefused for a tag that is malformed."""
    try:
        form = msgspec.json.decode(tag)["format"]
        _check(form)
    except (msgspec.DecodeError, ValueError, LookupError, TypeError, RecursionError, re.error, InvalidRequest) as error:
        raise EngineRefused(f"the constraint can't be read: {type(error).__name__}: {error}") from error
    return form


def _check(form: Any) -> None:
    """Look at a format and what is inside. Raises what tells that it is malformed."""
    if not isinstance(form, Mapping):
        raise TypeError("a format is an object")
    known = cast(Mapping[str, Any], form)
    if known["type"] == "regex":
        unchecked_tree(known["pattern"])
    for each in known.get("elements", ()):
        _check(each)
    if "content" in known:
        _check(known["content"])
