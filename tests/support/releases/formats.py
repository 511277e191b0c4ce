"""The numbers of all formats in which the project stores something, as they stand in its source."""

import ast
import re

from tests.support import ROOT

NAMES = re.compile(r"LAYOUT|VERSION|(?:[A-Z]+_)?FORMAT")


def formats() -> dict[str, int]:
    """Each number, by its file and its name: integers at the top of a module that are called so."""
    found: dict[str, int] = {}
    for path in sorted(path for package in ("service", "store") for path in (ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                name, value = ast.unparse(node.targets[0]), node.value.value
                if NAMES.fullmatch(name) and isinstance(value, int):
                    found[f"{path.relative_to(ROOT)} {name}"] = value
    return found
