"""The numbers of the house: how many rooms it has, which arrows lead between them, and what is made in one place only.

`scripts/check --house` prints each number with what it was when service/ and store/ were flat (commit 1fcb5d4) and with
its goal, and exits with status 1 where a goal is missed. Numbers are counted in the source, but for the way of one
request, which is run. Where a definition here counts 1fcb5d4 otherwise than its day did, the day's number is shown.

- A *room* is a folder directly in service/ or store/. What lies loose beside the rooms (errors, logs, states, …)
  belongs to no room: it is counted in no arrow between rooms.
- An *arrow* is an ordered pair of rooms, or of modules, of which the first imports the second anywhere. It leads *up*
  if the second stands higher in the layers of pyproject.toml; every room of the store is below every one of the
  service. A *knot* is a set of two or more rooms that reach each other.
- *A create request* is one POST /v1/responses that continues a stored response and declares a strict function, sent
  through the whole application with the demo engine and an embedded store, and watched by `sys.setprofile`. A room is
  entered when one of its functions runs for the request. A *climb* is a call from a function of a lower room to one of
  a higher room, each pair of functions counted once; functions of no room are passed over, so that what a loose module
  drives counts as called by whoever called that module.
- A *generator function* here is one that works in steps: it yields, and returns `Generator[None, None, T]` or an alias
  of that. One that only hands on the generator of another isn't one.
- A *hand-made LRU* is a dict that deletes its own first key. A *back-off* is a module that doubles a pause up to a
  bound (`min(MOST, 2 * pause)`, `min(MOST, FIRST * 2**failures)`). A *patch* is a place where a test sets a constant
  of a module.
- *Lines* are all lines of .py and .lua files that somebody writes, empty ones too.
"""

import ast
import asyncio
import re
import sys
import tempfile
import tomllib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
APART = ("service/engine/demo", "store/redis/lua")
"""Folders whose files are not counted: an engine of its own, and one file for each script."""

Arrows = set[tuple[str, str]]


class Code(NamedTuple):
    """A module: its path from the root, and all nodes of its syntax."""

    path: str
    nodes: tuple[ast.AST, ...]


class Row(NamedTuple):
    """A number: what it counts, what it was, the most it may be (None where that is open), and what it is."""

    name: str
    was: int
    goal: int | None
    now: int

    @property
    def missed(self) -> bool:
        """Whether it is past its goal."""
        return self.goal is not None and self.now > self.goal


# --- what is read --------------------------------------------------------------------------------------------------


def parsed(texts: Mapping[str, str]) -> dict[str, Code]:
    """The modules by their dotted names, from the text of each path."""
    return {name_of(path): Code(path, tuple(ast.walk(ast.parse(text)))) for path, text in texts.items()}


def name_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def sources(*folders: str) -> dict[str, Code]:
    """The modules of these folders of the project."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return parsed({path.relative_to(ROOT).as_posix(): path.read_text() for path in paths})


def layers() -> list[str]:
    """The rooms as pyproject.toml has them, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found = [layer for contract in contracts if contract["type"] == "layers" for layer in contract["layers"]]
    return [name for layer in found if layer != "store" for name in re.split(r"\s*:\s*", layer)]


def room_of(path: str) -> str | None:
    """The room of a path from the root, such as `service.api`, or None of what lies in no room."""
    parts = PurePosixPath(path).parts
    return ".".join(parts[:2]) if len(parts) > 2 and parts[0] in ("service", "store") else None


# --- rooms and arrows ----------------------------------------------------------------------------------------------


def imported(code: Mapping[str, Code]) -> Arrows:
    """Every module with each other one that it imports."""
    return {
        (name, found)
        for name, module in code.items()
        for wanted in import_names(module)
        if (found := nearest(wanted, code)) and found != name
    }


def import_names(module: Code) -> Iterator[str]:
    """The full names of all that a module imports, wherever in it."""
    package = PurePosixPath(module.path).parent.parts
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            yield from (".".join((*above, *filter(None, [node.module]), alias.name)) for alias in node.names)


def nearest(name: str, code: Mapping[str, Code]) -> str | None:
    """The module that holds what a name stands for."""
    while name and name not in code:
        name = name.rpartition(".")[0]
    return name or None


def rooms(code: Mapping[str, Code]) -> set[str]:
    return {room for module in code.values() if (room := room_of(module.path))}


def between_rooms(code: Mapping[str, Code]) -> Arrows:
    """The arrows from room to room."""
    named = {(room_of(code[a].path), room_of(code[b].path)) for a, b in imported(code)}
    return {(a, b) for a, b in named if a and b and a != b}


def upward(arrows: Arrows, order: list[str]) -> Arrows:
    """Those of the arrows that lead from a lower layer to a higher one."""
    return {(a, b) for a, b in arrows if order.index(a) > order.index(b)}


def knots(arrows: Arrows) -> set[frozenset[str]]:
    """Each set of rooms that reach each other."""
    reached: dict[str, set[str]] = {}
    for start in {a for a, _ in arrows}:
        seen, new = set[str](), {start}
        while new:
            new = {b for a, b in arrows if a in new} - seen
            seen |= new
        reached[start] = seen
    return {frozenset(b for b in seen if a in reached.get(b, ())) for a, seen in reached.items() if a in seen}


def crowded(code: Mapping[str, Code]) -> dict[str, int]:
    """The files of each folder, its `__init__` left out."""
    folders = [str(PurePosixPath(module.path).parent) for module in code.values() if "__init__" not in module.path]
    return {folder: folders.count(folder) for folder in folders if folder not in APART}


def arrows_inside(code: Mapping[str, Code]) -> dict[str, int]:
    """How many arrows lead from module to module within each folder."""
    within = [
        folder
        for a, b in imported(code)
        if (folder := str(PurePosixPath(code[a].path).parent)) == str(PurePosixPath(code[b].path).parent)
    ]
    return {folder: within.count(folder) for folder in within if folder not in APART}


# --- what is made in one place -------------------------------------------------------------------------------------


def calls(code: Mapping[str, Code], name: str) -> list[str]:
    """Every place that calls this name, as `path:line`."""
    return [
        f"{module.path}:{node.lineno}"
        for module, node in nodes(code)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def nodes(code: Mapping[str, Code]) -> Iterator[tuple[Code, ast.AST]]:
    for module in code.values():
        yield from ((module, node) for node in module.nodes)


def stepping(code: Mapping[str, Code]) -> list[str]:
    """Every function that works in steps, as `path:line name`."""
    aliases = {
        f"{name}.{target.id}"
        for name, module in code.items()
        for node in module.nodes
        if isinstance(node, ast.Assign) and works_in_steps(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found: list[str] = []
    for name, module in code.items():
        seen = {alias.rpartition(".")[2] for alias in aliases if alias.startswith(f"{name}.")}
        seen |= {wanted.rpartition(".")[2] for wanted in import_names(module) if wanted in aliases}
        found += [
            f"{module.path}:{node.lineno} {node.name}"
            for node in module.nodes
            if isinstance(node, ast.FunctionDef)
            and node.returns
            and works_in_steps(node.returns, seen)
            and yields(node)
        ]
    return found


def yields(node: ast.AST) -> bool:
    """Whether a function itself yields, other than in a function inside it."""
    inner = (each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.FunctionDef | ast.Lambda))
    return any(isinstance(each, ast.Yield | ast.YieldFrom) or yields(each) for each in inner)


def works_in_steps(annotation: ast.expr, aliases: set[str]) -> bool:
    written = ast.unparse(annotation).strip("'\"")
    return written.startswith("Generator[None, None, ") or written.partition("[")[0] in aliases


def evictions(code: Mapping[str, Code]) -> list[str]:
    """Every place where a dict loses its own first key, as `path:line`."""
    oldest = re.compile(r"del (\S+)\[next\(iter\(\1\)\)\]|(\S+)\.pop\(next\(iter\(\2\)\)")
    return [
        f"{module.path}:{node.lineno}"
        for module, node in nodes(code)
        if isinstance(node, ast.Delete | ast.Expr) and oldest.match(ast.unparse(node))
    ]


def backoffs(code: Mapping[str, Code]) -> set[str]:
    """The modules that double a pause up to a bound."""
    return {
        module.path
        for module, node in nodes(code)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "min"
        if re.search(r"\b2 \* \S*pause|pause \* 2\b|\* 2 \*\*", ast.unparse(node))
    }


def patches(tests: Mapping[str, Code]) -> list[str]:
    """Every place where a test sets a constant of a module, as `path:line NAME`."""
    return [
        f"{module.path}:{node.lineno} {found[1]}"
        for module, node in nodes(tests)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr"
        if (found := re.search(r"['.]([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)',", ast.unparse(node)))
    ]


def lines(root: Path = ROOT) -> int:
    """All lines of the product's Python and Lua."""
    files = [path for top in ("service", "store") for path in (root / top).rglob("*.*")]
    return sum(path.read_bytes().count(b"\n") for path in files if path.suffix in (".py", ".lua"))


# --- the way of one request ----------------------------------------------------------------------------------------


class Watch:
    """Notes which functions of which rooms run for one request, and who calls them."""

    def __init__(self, order: list[str], root: Path = ROOT) -> None:
        self.entered: set[str] = set()
        self.climbs: Arrows = set()
        self.watched: ContextVar[bool] = ContextVar("watched", default=False)
        self._order = order
        self._root = f"{root}/"

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """What `sys.setprofile` calls."""
        if event != "call" or not self.watched.get() or not (room := self._room(frame)):
            return
        self.entered.add(room)
        caller = frame.f_back
        while caller and not self._room(caller):
            caller = caller.f_back
        below = self._room(caller) if caller else None
        if caller and below and self._order.index(below) > self._order.index(room):
            self.climbs.add((f"{below}: {caller.f_code.co_qualname}", f"{room}: {frame.f_code.co_qualname}"))

    def _room(self, frame: FrameType) -> str | None:
        path = frame.f_code.co_filename
        return room_of(path.removeprefix(self._root)) if path.startswith(self._root) else None


async def create(watch: Watch) -> None:
    """Create a response, and another that continues it: the second one is watched."""
    from httpx import ASGITransport, AsyncClient

    from service.settings.settings import Settings
    from service.web.app import create_app
    from store.embedded import EmbeddedServer

    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    schema |= {"required": ["city"], "additionalProperties": False}
    tool = {"type": "function", "name": "get_weather", "strict": True, "parameters": schema}
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(Path(folder)) as server:
        settings = Settings.model_validate({"redis_url": server.url, "api_keys": (), "worker": False})
        app = create_app(settings)
        async with started(app), AsyncClient(transport=ASGITransport(app), base_url="http://localhost") as client:
            body: dict[str, Any] = {"model": "gpt-oss-20b", "input": "My name is Ada."}
            first = (await client.post("/v1/responses", json=body)).json()
            body |= {"input": "What is my name?", "previous_response_id": first["id"], "tools": [tool]}
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


# --- the table -----------------------------------------------------------------------------------------------------


def table(code: Mapping[str, Code], tests: Mapping[str, Code], watch: Watch) -> list[Row]:
    """Every number."""
    arrows, service = between_rooms(code), within("service", code)
    return [
        Row("Rooms on opening service and store", 85, 28, len(rooms(code))),
        Row("Arrows between rooms", 291, 98, len(arrows)),
        Row("Arrows between rooms that lead up", 1, 0, len(upward(arrows, layers()))),
        Row("Knots of rooms", 2, 0, len(knots(arrows))),
        Row("Most files in a folder", 65, 12, max(crowded(code).values())),
        Row("Arrows inside the largest folder", 238, 33, max(arrows_inside(code).values())),
        Row("A create request: rooms entered", 17, 12, len(watch.entered)),
        Row("A create request: climbs", 9, 4, len(watch.climbs)),
        Row("Places that make a Turn", 4, 1, len(calls(service, "Turn"))),
        Row("Places that make a Machine", 2, 1, len(calls(service, "Machine"))),
        Row("Generator functions that work in steps", 70, 26, len(stepping(code))),
        Row("Hand-made LRUs", 5, 0, len(evictions(code))),
        Row("Back-offs", 6, 1, len(backoffs(code))),
        Row("Constants patched by tests", 42, 10, len(patches(tests))),
        Row("Lines of service and store", 31_206, None, lines()),
    ]


def details(code: Mapping[str, Code], tests: Mapping[str, Code], watch: Watch) -> Iterator[str]:
    """What stands behind the numbers, a line each."""
    yield from (f"room entered: {room}" for room in sorted(watch.entered))
    yield from (f"climb: {caller} -> {callee}" for caller, callee in sorted(watch.climbs))
    for name in ("Turn", "Machine"):
        yield from (f"{name}: {place}" for place in calls(within("service", code), name))
    yield from (f"in steps: {place}" for place in stepping(code))
    yield from (f"LRU: {place}" for place in evictions(code))
    yield from (f"back-off: {place}" for place in sorted(backoffs(code)))
    yield from (f"patch: {place}" for place in patches(tests))


def within(package: str, code: Mapping[str, Code]) -> dict[str, Code]:
    return {name: module for name, module in code.items() if name.partition(".")[0] == package}


def main(arguments: list[str]) -> int:
    """Print the table, and with `--list` what stands behind it; 1 where a goal is missed."""
    sys.path.insert(0, str(ROOT))
    watch = Watch(layers())
    asyncio.run(create(watch))
    code, tests = sources("service", "store"), sources("tests")
    rows = table(code, tests, watch)
    print(f"{'':40}{'was':>8}{'goal':>8}{'now':>8}")
    for row in rows:
        goal = "" if row.goal is None else f"{row.goal:,}"
        print(f"{row.name:40}{row.was:8,}{goal:>8}{row.now:8,}{'  past its goal' if row.missed else ''}")
    if "--list" in arguments:
        print(*details(code, tests, watch), sep="\n")
    return int(any(row.missed for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
