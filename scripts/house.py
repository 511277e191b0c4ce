"""The budget of the house: how much code, documents and tests there are, and how much of it one request enters.

`scripts/check --house` prints each number beside its goal, with `over` where it is past that; the exit status is how
many are. All is counted over the files that git has. The goals are raised by a decision, never in the change that
goes past one.

- A *knot* is a set of two or more folders that import each other, directly or through others. A file that lies directly
  in service/ or store/ counts as a folder of its own.
- *A create* is one POST /v1/responses, streamed and stored, that continues a stored response and declares a strict
  function. It goes through the whole application, with the demo engine and an embedded store, and `sys.setprofile` sees
  which functions of ours run for it. A generator that goes on counts as a call. The deepest stack is the most
  of our own frames that stand above one another.
"""

import ast
import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SHORT_LINES = 60


class Row(NamedTuple):
    """A number, and the most that it should be."""

    name: str
    now: int
    goal: int

    def __str__(self) -> str:
        """The row as the table has it."""
        return f"{self.name:36}{self.now:9,}{self.goal:9,}{'  over' if self.now > self.goal else ''}"


def sizes(texts: Mapping[str, str]) -> Iterator[Row]:
    """The rows about files, whose texts are given by their paths."""
    code = {path: text for path, text in texts.items() if path.startswith(("service/", "store/"))}
    python = {path: text for path, text in code.items() if path.endswith(".py")}
    lua = {path: text for path, text in code.items() if path.endswith(".lua")}
    composed = {path: text for path, text in lua.items() if "/composed/" in path}
    console = [text for path, text in texts.items() if re.match(r"console/src/.*\.(ts|tsx|css)$", path)]
    documents = {path: text for path, text in texts.items() if re.match(r"docs/.*\.md$", path)}
    pages = {path: text for path, text in documents.items() if "/decisions/" not in path}
    decisions = [path for path in documents if re.match(r"docs/decisions/\d", path)]
    short = [
        path for path, text in python.items() if not path.endswith("__init__.py") and text.count("\n") < SHORT_LINES
    ]
    settings = re.findall(r"^\| `HARMONIUM_", texts.get("docs/configuration.md", ""), re.MULTILINE)
    tests = [text for path, text in texts.items() if re.match(r"tests/.*\.py$", path)]
    yield Row("lines of Python, service + store", lines(python.values()), 63_000)
    yield Row("lines of Lua by hand", lines(lua.values()) - lines(composed.values()), 4_500)
    yield Row("generated Lua in git, lines", lines(composed.values()), 0)
    yield Row("lines of the console", lines(console), 5_500)
    yield Row("folders with code", len({PurePosixPath(path).parent for path in python}), 42)
    yield Row("files with code", len(python), 380)
    yield Row(f"files below {SHORT_LINES} lines", len(short), 40)
    yield Row("settings", len(settings), 90)
    yield Row("pages of docs", len(pages), 24)
    yield Row("lines of docs and README", lines([*pages.values(), texts.get("README.md", "")]), 6_500)
    yield Row("decisions", len(decisions), 50)
    yield Row("lines of tests", lines(tests), 80_000)
    yield Row("knots between folders", len(knots(arrows(python))), 0)


def lines(texts: Iterable[str]) -> int:
    """The number of all lines, empty ones too."""
    return sum(text.count("\n") for text in texts)


def arrows(python: Mapping[str, str]) -> set[tuple[str, str]]:
    """The pairs of folders of which the first imports the second, anywhere in a file."""
    modules = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in python}
    found: set[tuple[str, str]] = set()
    for path, text in python.items():
        for name in imports(path, text):
            while name and name not in modules:
                name = name.rpartition(".")[0]
            if name:
                found.add((folder(path), folder(modules[name])))
    return {(a, b) for a, b in found if a != b}


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


def knots(arrows: set[tuple[str, str]]) -> set[frozenset[str]]:
    """The sets of folders that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in {a for a, _ in arrows}:
        seen, new = set[str](), {start}
        while new:
            new = {b for a, b in arrows if a in new} - seen
            seen |= new
        reached[start] = seen
    return {frozenset(b for b in seen if a in reached.get(b, ())) for a, seen in reached.items() if a in seen}


class Watch:
    """The functions of ours that run while `watched` is true, as `sys.setprofile` tells of them."""

    def __init__(self, root: Path = ROOT) -> None:
        self.watched: ContextVar[bool] = ContextVar("watched", default=False)
        self._own = (f"{root}/service/", f"{root}/store/")
        self._functions: set[tuple[str, str]] = set()
        self._calls = self._deepest = 0

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call."""
        code = frame.f_code
        if event != "call" or not self.watched.get() or not code.co_filename.startswith(self._own):
            return
        self._calls += 1
        self._functions.add((code.co_filename, code.co_qualname))
        depth, above = 0, frame
        while above:
            depth += above.f_code.co_filename.startswith(self._own)
            above = above.f_back
        self._deepest = max(self._deepest, depth)

    def rows(self) -> Iterator[Row]:
        """What was noted."""
        yield Row("a create: files entered", len({path for path, _ in self._functions}), 60)
        yield Row("a create: functions", len(self._functions), 400)
        yield Row("a create: calls", self._calls, 1_000)
        yield Row("a create: deepest own stack", self._deepest, 15)


async def create(watch: Watch) -> None:
    """Create a response, and another that continues it: the second one is watched."""
    from httpx import ASGITransport, AsyncClient

    from service.app import create_app
    from service.settings.settings import Settings
    from store.embedded import EmbeddedServer

    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    schema |= {"required": ["city"], "additionalProperties": False}
    tool = {"type": "function", "name": "get_weather", "strict": True, "parameters": schema}
    with tempfile.TemporaryDirectory() as home, EmbeddedServer(Path(home)) as server:
        settings = Settings.model_validate({"redis_url": server.url, "api_keys": (), "worker": False})
        app = create_app(settings)
        async with started(app), AsyncClient(transport=ASGITransport(app), base_url="http://localhost") as client:
            body: dict[str, Any] = {"model": "gpt-oss-20b", "input": "My name is Ada."}
            first = (await client.post("/v1/responses", json=body)).json()
            body |= {"input": "What is my name?", "previous_response_id": first["id"], "tools": [tool], "stream": True}
            watch.watched.set(True)
            sys.setprofile(watch)
            try:
                (await client.post("/v1/responses", json=body)).raise_for_status()
            finally:
                sys.setprofile(None)
                watch.watched.set(False)


@asynccontextmanager
async def started(app: Callable[..., Any]) -> AsyncGenerator[None]:
    """The application between its start and its end, as a server drives it."""
    inbox, outbox = asyncio.Queue[dict[str, Any]](), asyncio.Queue[dict[str, Any]]()
    lifespan = asyncio.ensure_future(app({"type": "lifespan"}, inbox.get, outbox.put))
    await inbox.put({"type": "lifespan.startup"})
    await outbox.get()
    yield
    await inbox.put({"type": "lifespan.shutdown"})
    await lifespan


def texts_in_git() -> dict[str, str]:
    """The texts of the files in git that are counted, by their paths."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [path for path in listed.splitlines() if path.endswith((".py", ".lua", ".ts", ".tsx", ".css", ".md"))]
    return {path: (ROOT / path).read_text() for path in paths if (ROOT / path).is_file()}


def main() -> int:
    """Print the table; the number of rows that are over."""
    sys.path.insert(0, str(ROOT))
    watch = Watch()
    asyncio.run(create(watch))
    rows = [*sizes(texts_in_git()), *watch.rows()]
    print(*rows, sep="\n")
    return sum(row.now > row.goal for row in rows)


if __name__ == "__main__":
    sys.exit(main())
