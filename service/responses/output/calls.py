"""Calls of the caller's own tools as items: functions, which take JSON, custom tools, which take text, and actions.

`unwrap` reads the input of a custom tool out of the JSON object that it was asked for in, `{"input": "…"}`, piece by
piece.

gpt-oss knows functions alone, so a custom tool whose input is any text is declared to it as a function with one string.
Anything else goes through as it is, and so do characters inside of the string that are not JSON: line breaks, quotes
and backslashes that should have been escaped. Nothing that may be part of the input is ever lost. Time is linear in the
text.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import UNSET, UnsetType

from service.api import events, ids
from service.api import response as shapes
from service.api.events import Event
from service.api.tools.callee import Callee, Kind
from service.api.tools.client import FORMS, ClientKind, action_of
from service.responses.output.emitter import Emitter
from store.turn import StoredMessage

MAX_GAP_CHARS = 64
"""The most white space in each of the places where JSON may have some; with more it is taken for something else."""

MAX_OPENING_CHARS = 4 * MAX_GAP_CHARS + len('{"input":"')
"""How much may stand before the input's first character."""

_GAP = rf"[ \t\r\n]{{0,{MAX_GAP_CHARS}}}"
_OPENING = re.compile(rf'{_GAP}\{{{_GAP}"input"{_GAP}:{_GAP}"')
_OPENING_STEPS = ("{", '"input"', ":", '"')
_CLOSING = re.compile(rf'"{_GAP}\}}?{_GAP}')
_BEGUN_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_PLAIN = re.compile(r'[^"\\]+')
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_REPLACEMENT = "\ufffd"


class Unwrapper:
    """Give it the text as it comes; each time it returns how the input goes on."""

    def __init__(self) -> None:
        self._waiting = ""
        """The text that isn't decided yet."""
        self._inside: bool | None = None
        """Whether it stands inside of the string; None as long as that isn't known, False where there is none."""
        self._high: int | None = None
        """The first half of a character beyond U+FFFF, as a lone escape."""

    def take(self, text: str) -> str:
        text, self._waiting = self._waiting + text, ""
        if self._inside is None:
            opening = _OPENING.match(text)
            if opening is None and len(text) <= MAX_OPENING_CHARS and _may_open(text):
                self._waiting = text
                return ""
            self._inside = opening is not None
            text = text[opening.end() :] if opening else text
        return self._decode(text) if self._inside else text

    def rest(self) -> str:
        """The text that still waits at the end, unless it is the closing mark."""
        text, self._waiting = self._waiting, ""
        if self._inside and _CLOSING.fullmatch(text):
            text = ""
        return self._whole(text)

    def _decode(self, text: str) -> str:
        out: list[str] = []
        place = 0
        while place < len(text):
            found = _PLAIN.match(text, place) or _ESCAPE.match(text, place)
            if found is not None:
                out.append(self._piece(found))
                place = found.end()
            elif self._undecided(text, place):
                self._waiting = text[place:]
                break
            else:
                out.append(self._whole(text[place]))
                place += 1
        return "".join(out)

    def _piece(self, found: re.Match[str]) -> str:
        """The text of a plain stretch, or of an escape."""
        if found.re is _PLAIN:
            return self._whole(found[0])
        if found[2] is not None:
            return self._whole(_SHORT.get(found[2], found[2]))
        code = int(found[1], 16)
        if 0xDC00 <= code < 0xE000 and self._high is not None:
            high, self._high = self._high, None
            return chr(0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00))
        if 0xD800 <= code < 0xDC00:
            before = self._whole("")
            self._high = code
            return before
        return self._whole(_REPLACEMENT if 0xDC00 <= code < 0xE000 else chr(code))

    def _whole(self, text: str) -> str:
        """The text, behind the substitute for a half of a character that lacks the other."""
        if self._high is None:
            return text
        self._high = None
        return _REPLACEMENT + text

    def _undecided(self, text: str, place: int) -> bool:
        """Whether more text may tell what the quote or the backslash at `place` means."""
        if text[place] == '"':
            return _CLOSING.fullmatch(text, place) is not None
        return _BEGUN_ESCAPE.fullmatch(text, place) is not None


def _may_open(text: str) -> bool:
    """Whether the text is the beginning of an opening."""
    left = text
    for step in _OPENING_STEPS:
        left = left.lstrip(" \t\r\n")
        if len(left) < len(step):
            return step.startswith(left)
        if not left.startswith(step):
            return False
        left = left[len(step) :]
    return True


class OwnCallEmitter(Emitter):
    """A call of a tool that the caller runs."""

    def __init__(self, response_id: str, index: int, callee: Callee) -> None:
        super().__init__(response_id, index)
        self._callee = callee
        self._call_id = ids.call_id(response_id, index)


class FunctionCallEmitter(OwnCallEmitter):
    """A call of a function; the arguments go through as sampled."""

    kind = "function_call"
    delta = events.FunctionCallArgumentsDelta

    def _item(self, status: shapes.ItemStatus) -> shapes.FunctionCall:
        namespace = self._callee.namespace or UNSET
        sealed: list[str] | UnsetType = [] if self._callee.seals else UNSET
        return shapes.FunctionCall(self._id, self._call_id, self._callee.name, self._said, status, namespace, sealed)

    def _ending(self, status: shapes.ItemStatus) -> list[Event]:
        return [events.FunctionCallArgumentsDone(self._id, self._index, self._callee.name, self._said)]


class CustomToolCallEmitter(OwnCallEmitter):
    """A call of a custom tool; where its input was asked for inside a JSON object, it is taken out as it comes."""

    kind = "custom_tool_call"
    delta = events.CustomToolCallInputDelta
    done = events.CustomToolCallInputDone

    def __init__(self, response_id: str, index: int, callee: Callee) -> None:
        super().__init__(response_id, index, callee)
        self._unwrapper = Unwrapper() if callee.wrapped else None

    def _item(self, status: shapes.ItemStatus) -> shapes.CustomToolCall:
        namespace = self._callee.namespace or UNSET
        return shapes.CustomToolCall(self._id, self._call_id, self._callee.name, self._said, status, namespace)

    def text(self, delta: str, logprobs: Sequence[shapes.Logprob] = ()) -> list[Event]:
        said = delta if self._unwrapper is None else self._unwrapper.take(delta)
        return super().text(said) if said else []

    def _rest(self) -> list[Event]:
        said = "" if self._unwrapper is None else self._unwrapper.rest()
        return super().text(said) if said else []


class ActionEmitter(OwnCallEmitter):
    """A call of a `tool` that has an item of its own: a search for tools, commands for a shell, a patch.

    The item has the action, and not the model's text, so nothing of it is known before the call is complete. It is
    shown whole or not at all: a client that carries out an action that was cut short would do harm.
    """

    tool: ClassVar[ClientKind]
    make: ClassVar[Callable[[str, str, dict[str, Any], shapes.ItemStatus], shapes.ActionCall]]
    """Makes the item of its id, the call's id, the action and the status."""

    def __init__(self, response_id: str, index: int, callee: Callee) -> None:
        super().__init__(response_id, index, callee)
        self._action = FORMS[self.tool].empty

    def fault_of(self, content: str) -> str | None:
        """Why its content is no call of the tool; None where it is one."""
        try:
            action_of(self.tool, content)
        except ValueError as error:
            return str(error)
        return None

    def close(self, status: shapes.ItemStatus, sampled: StoredMessage | None = None) -> tuple[shapes.Item, list[Event]]:
        if status == "completed":
            self._action = action_of(self.tool, self._said)
        return super().close(status, sampled)

    def _item(self, status: shapes.ItemStatus) -> shapes.ActionCall:
        return type(self).make(self._id, self._call_id, self._action, status)


class ToolSearchCallEmitter(ActionEmitter):
    kind, tool, make = "tool_search_call", "tool_search", shapes.ToolSearchCall


class LocalShellCallEmitter(ActionEmitter):
    kind, tool, make = "local_shell_call", "local_shell", shapes.LocalShellCall


class ShellCallEmitter(ActionEmitter):
    """Commands for the client's shell, which are told one by one."""

    kind, tool, make = "shell_call", "shell", shapes.ShellCall

    def _ending(self, status: shapes.ItemStatus) -> list[Event]:
        return command_events(self._id, self._index, self._action["commands"])


def command_events(id: str, index: int, commands: Sequence[str]) -> list[Event]:
    """The events of the commands of a shell's call, one after another."""
    out: list[Event] = []
    for place, command in enumerate(commands):
        out.append(events.ShellCallCommandAdded(id, index, place))
        if command:
            out.append(events.ShellCallCommandDelta(id, index, place, command))
        out.append(events.ShellCallCommandDone(id, index, place, command))
    return out


class ApplyPatchCallEmitter(ActionEmitter):
    """A patch, whose item begins once it is known: OpenAI's says which file it is about from its beginning on."""

    kind, tool, make = "apply_patch_call", "apply_patch", shapes.ApplyPatchCall
    late = True


OWN_CALLS: Mapping[Kind, type[OwnCallEmitter]] = {
    "function": FunctionCallEmitter,
    "custom": CustomToolCallEmitter,
    "tool_search": ToolSearchCallEmitter,
    "shell": ShellCallEmitter,
    "local_shell": LocalShellCallEmitter,
    "apply_patch": ApplyPatchCallEmitter,
}
"""The emitter of a call, by the kind of its tool."""
