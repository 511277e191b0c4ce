"""The programs that tests start and .venv doesn't have: `python -m tests.support.needs [PATH…]` names them.

A module of tests that starts one says so in a literal, NEEDS: the program, and the package of Debian that has it, or
`scripts/setup`, which installs what has the program's name. Tests need what they import, at any distance, and what each
conftest of theirs does. scripts/test installs that before it runs them, and nothing else.
"""

import ast
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support import ROOT


def needs(*paths: str) -> dict[str, str]:
    """What the tests under some paths of the project need: packages by their programs. A path may name one test."""
    found: dict[str, str] = {}
    seen: set[Path] = set()
    left = [file for path in paths for file in _files(ROOT / path.partition("::")[0])]
    while left:
        file = left.pop()
        if file not in seen:
            seen.add(file)
            imports, declared = _read(file)
            found |= declared
            left += imports
    return found


def program_path(program: str, needs: Mapping[str, str]) -> str:
    """The path of a program that a module needs; skips the test where it is missing."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program} on the PATH; it is in Debian's {needs[program]}")
    return path


def _files(path: Path) -> Iterator[Path]:
    """The tests at a path, and each conftest that they have."""
    yield from path.rglob("*.py") if path.is_dir() else [path]
    yield from (each for folder in path.parents if (each := folder / "conftest.py").exists())


@cache
def _read(file: Path) -> tuple[list[Path], dict[str, str]]:
    """The modules of tests that one imports, and what itself declares."""
    imports, declared = list[Path](), dict[str, str]()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            parts = str(node.module).split(".")
            imports += [ROOT.joinpath(*parts).with_suffix(".py")]
            imports += [ROOT.joinpath(*parts, alias.name).with_suffix(".py") for alias in node.names]
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NEEDS":
            declared = ast.literal_eval(node.value)
    return [each for each in imports if each.exists()], declared


if __name__ == "__main__":
    for program, package in needs(*(sys.argv[1:] or ["tests"])).items():
        print(f"{program}={package}")
