"""Stored prompts: a request names one by `prompt`, and gives its variables.

They are files that the operator writes into HARMONIUM_PROMPTS_DIR, the same for all tenants:

    ID.toml            what `prompt: {"id": "ID"}` means
    ID@VERSION.toml    what it means with that `version`; ID.toml too may say which `version` it is

    instructions = "You sell {{goods}}."
    [[input]]
    role = "user"
    content = "What is new about {{goods}}?"

A variable is a name in double braces, in the instructions or in a message. A request gives all of them and no others;
what stands for one is never looked through for more. Files are read by a thread, and again once they change.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from service.api.read import led_by
from service.api.request import CreateRequest, PromptParam
from service.decoding import decode
from service.errors import ApiError, InvalidRequest, brief, invalid_value, missing, not_served

logger = logging.getLogger(__name__)

MAX_TEMPLATE_BYTES = 256 << 10
MAX_MESSAGES = 64
"""The largest file of a stored prompt, and the most messages in one."""

MAX_VARIABLES = 256
MAX_FILLED_CHARS = 10_485_760
"""The longest text that a stored prompt gives, as long as instructions may be: a variable may stand in it often."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
"""An id or a version: part of a file's name, and never a way to another folder."""

_VARIABLE = re.compile(r"\{\{ *([A-Za-z_][A-Za-z0-9_]{0,63}) *\}\}")


class TemplateMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message of a stored prompt."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str


class Template(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stored prompt as its file has it."""

    version: str | None = None
    instructions: str | None = None
    input: Annotated[tuple[TemplateMessage, ...], Meta(max_length=MAX_MESSAGES)] = ()

    def texts(self) -> Iterator[str]:
        """Every text in which variables may stand."""
        yield self.instructions or ""
        yield from (message.content for message in self.input)


class _Text(msgspec.Struct, tag="input_text", forbid_unknown_fields=True):
    text: str


class _Image(msgspec.Struct, tag="input_image"):
    pass


class _File(msgspec.Struct, tag="input_file"):
    pass


async def apply_template(request: CreateRequest, prompt: PromptParam, folder: str) -> CreateRequest:
    """The request with what its `prompt` gives: instructions where it has none of its own, and messages before its
    own input; a `folder` called "" has no stored prompts.

    Raises InvalidRequest for a prompt that isn't there, for variables that are missing, unknown or no text, and where
    there is then no input at all; ApiError for one whose file is broken, which is the service's fault: the log has the
    reason.
    """
    if not folder:
        raise not_served("prompt", prompt.id, "This service has no stored prompts. Send the text itself.")
    filled, items = await asyncio.to_thread(_fill, Path(folder), prompt)
    joined = led_by(msgspec.json.encode(items), request.input)
    if bytes(joined) == b"[]" and request.previous_response_id is None:
        raise missing("input", "The stored prompt has no messages, so the request needs input.")
    instructions = filled if request.instructions is None else request.instructions
    return msgspec.structs.replace(request, input=joined, instructions=instructions)


def _fill(folder: Path, prompt: PromptParam) -> tuple[str | None, list[dict[str, str]]]:
    """The instructions and the messages of a stored prompt with its variables filled in."""
    template = _find(folder, prompt)
    values = _values(prompt.variables or {})
    _check(template, values)
    filled = partial(_VARIABLE.sub, lambda match: values[match[1]])
    instructions = None if template.instructions is None else filled(template.instructions)
    return instructions, [
        {"type": "message", "role": message.role, "content": filled(message.content)} for message in template.input
    ]


def _find(folder: Path, prompt: PromptParam) -> Template:
    """The template that is meant. Raises InvalidRequest where there is none."""
    if not _NAME.fullmatch(prompt.id):
        raise invalid_value("prompt.id", prompt.id, "No stored prompt has this id.")
    current = _read(folder / f"{prompt.id}.toml")
    if prompt.version is None:
        if current is None:
            raise invalid_value("prompt.id", prompt.id, "No stored prompt has this id.")
        return current
    if current is not None and current.version == prompt.version:
        return current
    named = _NAME.fullmatch(prompt.version) and _read(folder / f"{prompt.id}@{prompt.version}.toml")
    if not named:
        raise invalid_value("prompt.version", prompt.version, "The stored prompt has no such version.")
    return named


def _read(path: Path) -> Template | None:
    """The template in a file, None where there is none. Raises ApiError for a file that is broken."""
    try:
        stat = path.stat()
        return _decode(path, (stat.st_ino, stat.st_mtime_ns, stat.st_size))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        logger.error("the stored prompt %s can't be read: %s", path, error)
        raise ApiError(
            500,
            f"The stored prompt '{brief(path.stem)}' can't be read by the service, whose log has the reason.",
            type="server_error",
            code="server_error",
            param="prompt",
        ) from None


@lru_cache(128)
def _decode(path: Path, mark: tuple[int, int, int]) -> Template:
    """The template in a file, whose `mark` is another one once it changes. Raises OSError and ValueError."""
    with path.open("rb") as file:
        text = file.read(MAX_TEMPLATE_BYTES + 1)
    if len(text) > MAX_TEMPLATE_BYTES:
        raise ValueError(f"it has more than {MAX_TEMPLATE_BYTES} bytes")
    return msgspec.toml.decode(text, type=Template)


def _values(variables: Mapping[str, msgspec.Raw]) -> dict[str, str]:
    """The text of each variable. Raises InvalidRequest for a value that is no text."""
    if len(variables) > MAX_VARIABLES:
        raise invalid_value("prompt.variables", f"{len(variables)} variables", f"At most {MAX_VARIABLES} are allowed.")
    values: dict[str, str] = {}
    for name, raw in variables.items():
        where = f"prompt.variables.{brief(name)}"
        value = decode(raw, str | _Text | _Image | _File, where)
        if isinstance(value, (_Image, _File)):
            raise not_served(where, value.__struct_config__.tag, "Give a string or an input_text.")
        values[name] = value if isinstance(value, str) else value.text
    return values


def _check(template: Template, values: Mapping[str, str]) -> None:
    """Raise InvalidRequest for values that are not those of the template's variables, or give too long a text."""
    places = Counter(match[1] for text in template.texts() for match in _VARIABLE.finditer(text))
    absent = next((name for name in places if name not in values), None)
    if absent is not None:
        raise InvalidRequest(
            f"Missing required parameter: 'prompt.variables.{absent}'. The stored prompt has this variable.",
            code="missing_required_parameter",
            param=f"prompt.variables.{absent}",
        )
    unknown = next((name for name in values if name not in places), None)
    if unknown is not None:
        names = ", ".join(places) or "none"
        raise invalid_value("prompt.variables", unknown, f"The stored prompt has these variables: {brief(names)}.")
    length = sum(map(len, template.texts())) + sum(len(values[name]) * count for name, count in places.items())
    if length > MAX_FILLED_CHARS:
        raise invalid_value(
            "prompt.variables", f"{length} characters when filled in", f"At most {MAX_FILLED_CHARS} are allowed."
        )
