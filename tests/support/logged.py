"""The fields of log lines and the attributes of spans, read from the calls, so that no document lacks one."""

import ast
from collections.abc import Iterator

from tests.support import ROOT

OF_EACH_LINE = {"request_id", "traceback"}
"""Fields that service/logs.py adds, or the log of what was raised."""

OF_LISTS = {"tools_left_out", "items_left_out"}
"""Fields of a request whose names stand in a list (`Exchange.left_out`)."""

_LOGS = {"event", "_record", "_tell", "end"}
"""The functions that take fields: those of service/logs.py, of the guard of the disk, and of a request."""


def log_fields() -> set[str]:
    """The names of all fields that a line can have."""
    return OF_EACH_LINE | OF_LISTS | {name for tree in _trees() for name in _fields(tree)}


def log_messages() -> set[str]:
    """The messages of lines that stand in calls as they are."""
    calls = (each for tree in _trees() for each in ast.walk(tree) if isinstance(each, ast.Call))
    given = (each.args[2] for each in calls if _name(each.func) == "event" and _logs(each) and len(each.args) > 2)
    return {message for each in given for message in _constants(each)}


def attributes() -> set[str]:
    """The attributes of spans that have names of our own."""
    keys = {key for tree in _trees() for key in _keys(tree)}
    return {key for key in keys if key.startswith("harmonium.")}


def _trees() -> Iterator[ast.Module]:
    for folder in ("service", "store"):
        for path in (ROOT / folder).rglob("*.py"):
            yield ast.parse(path.read_text())


def _fields(tree: ast.Module) -> Iterator[str]:
    """Keywords of calls, and the members of the dictionaries that are given to them or to `extra`."""
    given = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in _LOGS and _logs(node):
            for each in node.keywords:
                if each.arg is None:
                    given |= {_name(part) for part in ast.walk(each.value)}
                elif _name(node.func) != "end":
                    yield each.arg
            yield from (key for each in node.args if _name(node.func) == "_record" for key in _keys(each))
        elif isinstance(node, ast.keyword) and node.arg == "extra":
            yield from _keys(node.value, within="fields")
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and target.id in given:
                    yield from _keys(node.value)
                elif isinstance(target, ast.Subscript) and _is_given(target.value, given):
                    yield from _constants(target.slice)
        elif isinstance(node, ast.FunctionDef) and node.name in given:
            yield from _keys(node)
            stored = (each for each in ast.walk(node) if isinstance(each, ast.Subscript))
            yield from (key for each in stored if isinstance(each.ctx, ast.Store) for key in _constants(each.slice))


def _is_given(value: ast.expr, given: set[str]) -> bool:
    """Whether a member is set of the facts of a request, or of what a call of the file is given."""
    return _name(value) in (given if isinstance(value, ast.Name) else ("facts",))


def _logs(call: ast.Call) -> bool:
    """Whether a call is one of the log's, and not of another function of the name."""
    first = call.args[0] if call.args else None
    return _name(call.func) != "event" or isinstance(first, ast.Name)


def _keys(value: ast.AST, within: str = "") -> Iterator[str]:
    """The keys of the dictionaries in an expression; or of those under a key."""
    for each in ast.walk(value):
        if isinstance(each, ast.Dict):
            for key, under in zip(each.keys, each.values, strict=True):
                if within and key is not None and within in _constants(key):
                    yield from _keys(under)
                elif not within and key is not None:
                    yield from _constants(key)


def _constants(value: ast.expr) -> list[str]:
    return [value.value] if isinstance(value, ast.Constant) and isinstance(value.value, str) else []


def _name(value: ast.AST) -> str:
    return value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
