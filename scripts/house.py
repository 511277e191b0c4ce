"""The budget of the house: how much code and tests there are, and how much of the core knows a feature.

`scripts/check --house` prints each number beside its goal, with `over` where it is past that; the exit status is how
many are. With `--arrows` it lists the arrows, the unused files that a create enters, and the features with their lines,
before the table. All is counted over the files that git has or would take. The goals are raised
by a decision, never in the change that goes past one.

- A *feature* has a table in pyproject.toml (`tool.house.features`): the folders and files that are its own, and the
  number of lines that it may have. The *core* is every other file of service/ and store/.
- An *arrow* is a file of the core that imports a file of a feature, anywhere in it. service/process.py has the list of
  features, and opens them by their names.
- A *knot* is a set of two or more folders that import each other, directly or through others. A file that lies directly
  in service/ or store/ counts as a folder of its own.
- *A plain create* is the first POST /v1/responses of a process: neither streamed nor continued, without tools. It goes
  through the whole application, with the demo engine and an embedded store, which are thus the features that it uses;
  `sys.setprofile` sees which files of ours it enters.
"""

import ast
import asyncio
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]

USED = ("demo", "embedded")
"""The features that a plain create uses."""
PRODUCT = 76_000
NEW = {"batches": 700, "catalogue": 900, "files": 900, "trajectories": 1_300}
"""The lines by which features that were not there when the budget was made raise the product's goal, once they are."""


class Feature(NamedTuple):
    """The files of a feature, and the most lines of Python that they may have."""

    name: str
    paths: tuple[str, ...]
    lines: int

    def __contains__(self, path: object) -> bool:
        """Whether a file is the feature's."""
        return any(within(str(path), each) for each in self.paths)


class Row(NamedTuple):
    """A number, and the most that it should be."""

    name: str
    now: int
    goal: int

    def __str__(self) -> str:
        """The row as the table has it."""
        return f"{self.name:36}{self.now:9,}{self.goal:9,}{'  over' if self.now > self.goal else ''}"


def feature_map() -> list[Feature]:
    """The map in pyproject.toml."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["house"]["features"]
    return [Feature(name, tuple(table["paths"]), table["lines"]) for name, table in tables.items()]


def within(path: str, pattern: str) -> bool:
    """Whether a path is what the pattern names: a file, or anything in a folder, which ends in a slash."""
    return path.startswith(pattern) if pattern.endswith("/") else path == pattern


def rows(texts: Mapping[str, str], features: Sequence[Feature], entered: set[str]) -> Iterator[Row]:
    """The table, of texts by their paths and of the files that a plain create entered."""
    code = {path: text for path, text in texts.items() if path.startswith(("service/", "store/"))}
    python = {path: text for path, text in code.items() if path.endswith(".py")}
    core = [text for path, text in python.items() if not any(path in each for each in features)]
    documents = [path for path in texts if re.match(r"docs/.*\.md$", path)]
    decisions = [path for path in documents if re.match(r"docs/decisions/\d", path)]
    pages = [path for path in documents if "/decisions/" not in path]
    settings = re.findall(r"^\| `HARMONIUM_", texts.get("docs/configuration.md", ""), re.MULTILINE)
    tests = [text for path, text in texts.items() if re.match(r"tests/.*\.py$", path)]
    product = lines(python.values())
    yield Row("arrows from the core to features", len(arrows(python, features)), 0)
    yield Row("lines of Python in the core", lines(core), 39_000)
    yield Row("lines of Python, service + store", product, PRODUCT + sum(NEW.get(each.name, 0) for each in features))
    yield Row("unused features' files in a create", len(unused(features, entered)), 0)
    yield Row("features over their number", sum(row.now > row.goal for row in sizes(python, features)), 0)
    yield Row("type names that mean two things", len(double_names(python)), 0)
    yield Row("lines of Lua by hand", lines(text for path, text in code.items() if path.endswith(".lua")), 5_000)
    yield Row("lines of tests", lines(tests), product)
    yield Row("knots between folders", len(knots(between_folders(python))), 0)
    yield Row("settings", len(settings), 95)
    yield Row("pages of docs", len(pages), 25)
    yield Row("decisions", len(decisions), 50)


def sizes(python: Mapping[str, str], features: Iterable[Feature]) -> Iterator[Row]:
    """The lines of each feature."""
    for each in features:
        yield Row(each.name, lines(text for path, text in python.items() if path in each), each.lines)


def unused(features: Iterable[Feature], entered: Iterable[str]) -> list[str]:
    """The files that a plain create entered, of features that it doesn't use."""
    return sorted(path for path in entered for each in features if path in each and each.name not in USED)


def lines(texts: Iterable[str]) -> int:
    """The number of all lines, empty ones too."""
    return sum(text.count("\n") for text in texts)


def double_names(python: Mapping[str, str]) -> set[str]:
    """The names of public types that more than one file defines."""
    names = Counter(
        name for text in python.values() for name in set(re.findall(r"^class ([A-Z]\w*)", text, re.MULTILINE))
    )
    return {name for name, files in names.items() if files > 1}


def arrows(python: Mapping[str, str], features: Sequence[Feature]) -> set[tuple[str, str, str]]:
    """The pairs of a file of the core and a file of a feature that it imports, each behind the feature's name."""
    owners = {path: each.name for each in features for path in python if path in each}
    return {(owners[b], a, b) for a, b in file_imports(python) if b in owners and a not in owners}


def between_folders(python: Mapping[str, str]) -> set[tuple[str, str]]:
    """The pairs of folders of which the first imports the second."""
    return {(folder(a), folder(b)) for a, b in file_imports(python) if folder(a) != folder(b)}


def file_imports(python: Mapping[str, str]) -> set[tuple[str, str]]:
    """The pairs of files of which the first imports the second, anywhere in it."""
    modules = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in python}
    found: set[tuple[str, str]] = set()
    for path, text in python.items():
        for name in imports(path, text):
            while name and name not in modules:
                name = name.rpartition(".")[0]
            if name:
                found.add((path, modules[name]))
    return found


def imports(path: str, text: str) -> Iterator[str]:
    """The full names that a file imports."""
    package = PurePosixPath(path).parent.parts
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            yield from (".".join((*above, *filter(None, [node.module]), alias.name)) for alias in node.names)


def folder(path: str) -> str:
    """The folder of a file; the file itself where it lies in no room."""
    return path if path.count("/") == 1 else str(PurePosixPath(path).parent)


def knots(pairs: set[tuple[str, str]]) -> set[frozenset[str]]:
    """The sets of folders that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in {a for a, _ in pairs}:
        seen, new = set[str](), {start}
        while new:
            new = {b for a, b in pairs if a in new} - seen
            seen |= new
        reached[start] = seen
    return {frozenset(b for b in seen if a in reached.get(b, ())) for a, seen in reached.items() if a in seen}


class Watch:
    """The files of ours whose functions run while `watched` is true, as `sys.setprofile` reports them."""

    def __init__(self, root: Path = ROOT) -> None:
        self.watched: ContextVar[bool] = ContextVar("watched", default=False)
        self.entered: set[str] = set()
        self._root = f"{root}/"

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note the file of a function that is called; the body of a module that is imported then is none."""
        code = frame.f_code
        if event == "call" and self.watched.get() and code.co_name != "<module>":
            self.entered.add(code.co_filename.removeprefix(self._root))


async def create(watch: Watch) -> None:
    """Create a response, which is watched."""
    from httpx import ASGITransport, AsyncClient

    from service.app import create_app
    from service.process import Settings
    from store.embedded import EmbeddedServer

    with tempfile.TemporaryDirectory() as home, EmbeddedServer(Path(home)) as server:
        settings = Settings.model_validate({"redis_url": server.url, "api_keys": (), "embedded_worker": False})
        app = create_app(settings)
        async with (
            started(app) as running,
            AsyncClient(transport=ASGITransport(running), base_url="http://localhost") as client,
        ):
            watch.watched.set(True)
            sys.setprofile(watch)
            try:
                body = {"model": "gpt-oss-20b", "input": "My name is Ada."}
                (await client.post("/v1/responses", json=body)).raise_for_status()
            finally:
                sys.setprofile(None)
                watch.watched.set(False)


@asynccontextmanager
async def started(app: Callable[..., Any]) -> AsyncGenerator[Callable[..., Awaitable[None]]]:
    """The application between its start and its end, as a server drives it: what it begins with is in each request."""
    inbox, outbox, state = asyncio.Queue[dict[str, Any]](), asyncio.Queue[dict[str, Any]](), dict[str, Any]()
    lifespan = asyncio.ensure_future(app({"type": "lifespan", "state": state}, inbox.get, outbox.put))
    await inbox.put({"type": "lifespan.startup"})
    await outbox.get()
    yield lambda scope, receive, send: app(scope | {"state": dict(state)}, receive, send)
    await inbox.put({"type": "lifespan.shutdown"})
    await lifespan


def texts_in_git() -> dict[str, str]:
    """The texts of the files that are counted, by their paths: those that git has, or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    paths = [path for path in listed.splitlines() if path.endswith((".py", ".lua", ".ts", ".tsx", ".css", ".md"))]
    return {path: (ROOT / path).read_text() for path in paths if (ROOT / path).is_file()}


def main() -> int:
    """Print the table, behind its lists where they are asked for; the number of rows that are over."""
    sys.path.insert(0, str(ROOT))
    texts, features, watch = texts_in_git(), feature_map(), Watch()
    asyncio.run(create(watch))
    if sys.argv[1:] == ["--arrows"]:
        python = {path: text for path, text in texts.items() if re.match(r"(service|store)/.*\.py$", path)}
        print(*(f"{name:15} {a} -> {b}" for name, a, b in sorted(arrows(python, features))), "", sep="\n")
        print(*(f"a create enters {path}" for path in unused(features, watch.entered)), "", sep="\n")
        print(*sizes(python, features), "", sep="\n")
    table = list(rows(texts, features, watch.entered))
    print(*table, sep="\n")
    return sum(row.now > row.goal for row in table)


if __name__ == "__main__":
    sys.exit(main())
