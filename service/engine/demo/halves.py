"""The rest of a JSON text that was broken off in the middle, guided by the value that it was to say.

A text that departs from that value is closed as soon as it can be; missing parts are taken from the value.
"""

import json
import re
from typing import Any, cast

_STRING = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)
_ZEROS = [f'{"0" * missing}"' for missing in (1, 2, 3, 4)]
_WORDS = [word[begun:] for word in ("true", "false", "null") for begun in range(1, len(word))]
_MEMBERS = [f"{end}:null" for end in ("", '"', '\\"', *_ZEROS, '"more"')]
_ENDS = ["", "null", '"', '\\"', *_ZEROS, "0", *_WORDS, *_MEMBERS]
"""The endings that may complete a value, or a member of an object, broken off anywhere."""
_PLAIN_MEMBERS = (":null", '":null', '"more":null')
_NOTHING = object()


def written(value: object) -> str:
    """A value as JSON, without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def rest_of(begun: str, value: object) -> str:
    """The text that completes `begun` to JSON; empty where it is whole, or no JSON."""
    if written(value).startswith(begun):
        return written(value)[len(begun) :]
    closings = _closings(begun)
    for end in _ENDS:
        try:
            made = json.loads(f"{begun}{end}{closings}", object_pairs_hook=_members)
        except (ValueError, RecursionError):
            continue
        return _rest(end, closings, made, value)
    return ""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose last member is the last that was written."""
    return dict(reversed(dict(reversed(pairs)).items()))


def _closings(begun: str) -> str:
    """The brackets that are still to be closed, from the innermost on."""
    opened: list[str] = []
    for bracket in re.findall(r"[][{}]", _STRING.sub("", begun)):
        if bracket in "[{":
            opened.append("]" if bracket == "[" else "}")
        elif opened:
            opened.pop()
    return "".join(reversed(opened))


def _rest(end: str, closings: str, made: Any, wanted: Any) -> str:
    """The completion of a text that `end` and `closings` make the value `made`, with all that is wanted beside it."""
    open_ones: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
    for _ in closings:
        given, desired = _parts(made), _parts(wanted) if type(wanted) is type(made) else {}
        open_ones.append((given, desired))
        last = next(reversed(given), None)
        made, wanted = given.get(last), desired.get(last, _NOTHING)
    if end.endswith(":null"):
        given, desired = open_ones[-1]
        key = next(reversed(given))
        begun = {":null": written(key), '"more":null': ""}.get(end, written(key)[:-1])
        fitting = (name for name in desired if written(name).startswith(begun) and (name == key or name not in given))
        if end in _PLAIN_MEMBERS and (name := next(fitting, None)) is not None:
            del given[key]
            given[name] = None
            end = f"{written(name)[len(begun) :]}:{written(desired[name])}"
    elif end == "null" and wanted is not _NOTHING:
        end = written(wanted)
    elif end == '"' and isinstance(wanted, str) and written(wanted).startswith(written(made)[:-1]):
        end = written(wanted)[len(written(made)) - 1 :]
    for (given, desired), closing in zip(reversed(open_ones), closings, strict=True):
        missing = [(name, value) for name, value in desired.items() if name not in given]
        members = [f"{written(name)}:{written(value)}" if closing == "}" else written(value) for name, value in missing]
        end += f"{',' if given and members else ''}{','.join(members)}{closing}"
    return end


def _parts(value: Any) -> dict[Any, Any]:
    """The members of an object, or the items of a list by their places."""
    if isinstance(value, dict):
        return dict(cast(dict[Any, Any], value))
    return dict(enumerate(cast(list[Any], value))) if isinstance(value, list) else {}
