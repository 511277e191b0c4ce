"""What a server that reads its model itself is told of tools and of formats, as Chat Completions has it. Pure.

What is asked of other models is a structural tag (tags.py); here it is the server's to see that it holds, and the check
at the end sees whether it did.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from service.grammar.tags import content_tag


def tools_asked(tools: bytes, able: Mapping[str, str | None]) -> bytes:
    """Of tools in JSON those that may be called. `able` has the format of the arguments of each (grammar/tags.py) by
    name, None for any object.
    """
    listed = msgspec.json.decode(tools, type=list[dict[str, Any]])
    kept = [each for each in listed if each["function"]["name"] in able]
    for each in kept:
        if able[each["function"]["name"]] is not None:
            each["function"]["strict"] = True
    return msgspec.json.encode(kept)


def response_format(content: str) -> bytes:
    """The format of an answer (grammar/tags.py); empty where it is none of JSON."""
    form = msgspec.json.decode(content_tag(content))["format"]
    if form["type"] != "json_schema":
        return b""
    schema = {"name": "answer", "strict": True, "schema": form["json_schema"]}
    return msgspec.json.encode({"type": "json_schema", "json_schema": schema})
