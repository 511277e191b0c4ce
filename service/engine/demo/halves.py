"""Halves of JSON: the rest of a text that was broken off in the middle, guided by a value that it should have been.

What was begun otherwise than in the value is closed as soon as it can be; what is missing is taken from the value.
"""

import json
from typing import Any, cast

DEPTH = 200
"""How deep a text is nested at most; a deeper one has no rest."""

_DECODER = json.JSONDecoder()
_BLANKS = " \t\r\n"
_WORDS = ("true", "false", "null")


def rest_of(begun: str, value: object) -> str:
    """What completes `begun` to JSON; empty where it is whole, or no JSON."""
    half = _Half(begun)
    try:
        half.value(value, DEPTH)
    except _Ended as ended:
        return ended.rest
    except (ValueError, RecursionError):
        return ""
    return ""


class _Ended(Exception):
    """The text ended here; `rest` completes what was open, from the innermost on."""

    def __init__(self, rest: str) -> None:
        super().__init__()
        self.rest = rest


class _Half:
    """A cursor that reads JSON until the text ends."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place: int = 0

    def value(self, wanted: Any, depth: int) -> None:
        """Read a value. Raises _Ended with its rest, ValueError for what is no JSON."""
        if depth == 0:
            raise ValueError("nested too deep")
        match self._peek():
            case "":
                raise _Ended(written(wanted))
            case "{":
                self._object(cast(dict[str, Any], wanted) if isinstance(wanted, dict) else {}, depth)
            case "[":
                self._array(cast(list[Any], wanted) if isinstance(wanted, list) else [], depth)
            case '"':
                self._string(wanted)
            case _:
                self._bare(wanted)

    def _object(self, wanted: dict[str, Any], depth: int) -> None:
        self._place += 1
        seen: set[str] = set()
        while True:
            if not self._peek():
                raise _Ended(_members(wanted, seen, comma=False) + "}" if self._after(",{") else "}")
            if self._peek() == "}" and not seen:
                break
            missing = [key for key in wanted if key not in seen]
            begun = self._place
            try:
                key = self._string(None)
            except _Ended as ended:
                said = self._text[begun:]
                key = next((key for key in missing if written(key).startswith(said)), None)
                if key is None:
                    raise _Ended(f"{ended.rest}:null{_members(wanted, seen)}}}") from None
                seen.add(key)
                rest = f"{written(key)[len(said) :]}:{written(wanted[key])}"
                raise _Ended(f"{rest}{_members(wanted, seen)}}}") from None
            seen.add(key)
            if not self._peek():
                raise _Ended(f":{written(wanted.get(key))}{_members(wanted, seen)}}}")
            self._expect(":")
            try:
                self.value(wanted.get(key), depth - 1)
            except _Ended as ended:
                raise _Ended(f"{ended.rest}{_members(wanted, seen)}}}") from None
            if not self._peek():
                raise _Ended(f"{_members(wanted, seen)}}}")
            if self._peek() == "}":
                break
            self._expect(",")
            if not self._peek() and not _members(wanted, seen):
                raise _Ended('"more":null}')
        self._place += 1

    def _array(self, wanted: list[Any], depth: int) -> None:
        self._place += 1
        number = 0
        while self._peek() != "]" or number:
            left = ",".join(written(each) for each in wanted[number:])
            if not self._peek() and not number:
                raise _Ended(f"{left}]")
            try:
                self.value(wanted[number] if number < len(wanted) else wanted[0] if wanted else None, depth - 1)
            except _Ended as ended:
                raise _Ended(f"{ended.rest}{''.join(f',{written(each)}' for each in wanted[number + 1 :])}]") from None
            number += 1
            if not self._peek():
                raise _Ended(f"{''.join(f',{written(each)}' for each in wanted[number:])}]")
            if self._peek() == "]":
                break
            self._expect(",")
        self._place += 1

    def _string(self, wanted: object) -> str:
        self._expect('"')
        begun = self._place
        try:
            text, self._place = _DECODER.raw_decode(self._text, begun - 1)
        except ValueError:
            said = self._text[begun:]
            if isinstance(wanted, str) and (whole := written(wanted)[1:]).startswith(said):
                raise _Ended(whole[len(said) :]) from None
            raise _Ended(_escaped(said) + '"') from None
        return text

    def _bare(self, wanted: object) -> None:
        begun = self._place
        while self._text[self._place : self._place + 1] not in ("", ",", "}", "]", *_BLANKS):
            self._place += 1
        said = self._text[begun : self._place]
        if self._place == len(self._text):
            whole = written(wanted)
            word = next((word for word in (whole, *_WORDS) if word.startswith(said)), None)
            raise _Ended("0" if said[-1] in "+-.eE" and word is None else (word or said)[len(said) :])
        json.loads(said)

    def _after(self, marks: str) -> bool:
        """Whether the last thing that was read is one of these."""
        return self._text.rstrip(_BLANKS)[-1:] in marks

    def _peek(self) -> str:
        while self._text[self._place : self._place + 1] in _BLANKS and self._place < len(self._text):
            self._place += 1
        return self._text[self._place : self._place + 1]

    def _expect(self, mark: str) -> None:
        if self._peek() != mark:
            raise ValueError(f"no {mark} at {self._place}")
        self._place += 1


def written(value: object) -> str:
    """A value as JSON, without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _members(wanted: dict[str, Any], seen: set[str], *, comma: bool = True) -> str:
    """The members that are still missing."""
    missing = ",".join(f"{written(key)}:{written(value)}" for key, value in wanted.items() if key not in seen)
    return f",{missing}" if missing and comma else missing


def _escaped(said: str) -> str:
    """What completes an escape at the end of a string that was broken off."""
    tail = said[len(said.rstrip("\\")) :] if said.endswith("\\") else ""
    if len(tail) % 2:
        return "\\"
    code = said[said.rfind("\\u") + 2 :] if "\\u" in said[-6:] else "0000"
    return "0" * max(0, 4 - len(code))
