"""The rules that keep the packages apart, read from the syntax of every file.

Each rule is a function from a file to its breaches. One test runs all of them over the tree, and another
trips each on a snippet, so that a rule that has gone blind is noticed. Add a rule here rather than a plea in
a document.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from tests.support import ROOT

PASSED_OVER = {
    ".git",
    ".venv",
    ".venv-vllm",
    ".venv-clients",
    ".venv-clients-full",
    ".venv-open-webui",
    ".venv-judges",
    ".venv-phoenix",
    ".venv-aiperf",
    ".venv-release",
    ".venv-templates",
    ".venv-peer-smg",
    ".venv-peer-litellm",
    ".venv-peer-ogx",
    ".env",
    ".hypothesis",
    "__pycache__",
    "node_modules",
    "build",
    "dist",
    "data",
}

WEB = ("fastapi", "starlette", "uvicorn", "pydantic", "typer", "openai")
IMPURE = (
    *("asyncio", "ctypes", "getpass", "http", "logging", "multiprocessing", "os", "pathlib", "platform", "random"),
    *("secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess"),
    *("tempfile", "threading", "time", "urllib", "uuid"),
)
CLOCKS = ("now", "utcnow", "today")
PURE = (
    *(
        "service/harmony/",
        "service/grammar/",
        "service/features/models/markup/",
        "service/features/browser/browser/",
        "service/api/",
    ),
    *(
        "service/responses/prompt/",
        "service/responses/output/",
        "service/errors.py",
        "service/decoding.py",
        "service/pictures.py",
    ),
)
"""Rooms and files that do no I/O: what they need of a clock, of chance and of the world is passed in."""
PURE_BESIDES_STDLIB = (
    *(
        "msgspec",
        "bpe_openai",
        "jsonschema_rs",
        "service.steps.in_one_go",
        "service.steps.cached_steps",
        "urllib.parse",
    ),
    *("store.turn", "store.codec", "store.errors"),
    *(
        f"service.engine.port.{value}"
        for value in (
            *("Generation", "Sampling", "Finish", "TokenLogprobs", "LEAST_LOGPROB", "UNTOLD"),
            *(
                "ChatRequest",
                "HARMONY",
                "MarkupTags",
                "SERVER",
                "SHOWN",
                "ShownTools",
                "Speech",
                "Transcript",
                "usual_options",
            ),
        )
    ),
    *(path.removesuffix("/").removesuffix(".py").replace("/", ".") for path in PURE),
)
WIRE = "service/api/request.py"
SETTINGS = ("service/settings/sources.py", "service/settings/core.py")
SESSIONS = "service/features/sandbox/inside/zygote.py"
"""Makes the environment of the sessions that it forks."""
GUEST = "service/features/vllm_local/library.py"
"""Sets variables for vLLM, which is told some things in no other way."""
CLIENT = "service/features/client/options.py"
"""The commands of a client know no settings of a service; its environment goes from here to its profile."""

REGISTRY = re.compile(r"[a-z+]+://|--(?:extra-)?index-url|--find-links|--trusted-host", re.IGNORECASE)
LOCKS = re.compile(r"(?:requirements/.+\.txt|.*package-lock\.json|.*\.lock)")
MACHINE_PATH = re.compile(r"(?<![\w.~*-])/(?:work|root|home/(?!harmonium/)\w+)/")

OLD_NAMES = {
    "Arrival": "Exchange",
    "Complaint": "Fault",
    "Creation": "Plan",
    "JobSpec": "Plan",
    "LogWriter": "LogSink",
    "Mender": "Repair",
    "Onward": "AfterCompaction",
    "Turns": "Stretch",
    "held_grammar": "enforced_grammar",
    "held_schema": "enforced_schema",
    "held_steps": "enforced_schema",
    "mend": "repair",
    "mending": "repair",
    "outgrown": "over_threshold",
    "owed": "feedback",
    "persistently": "retry",
    "poke": "wake",
}
"""Former names, each with the one that replaced it (docs/architecture.md#words). Names of files and arguments count."""
OLD_WORDS = {
    r"taken at (its|their) word": "not checked",
    r"come back later": "retry later",
    r"told to come back": "refused",
    r"held to the letter": "enforced",
    r"told besides": "also needs",
}
"""Figures of speech, with the plain word. Only phrases that mean nothing else in English stand here."""

PARTICIPLE = re.compile(
    r"(?!_?(?:read|feed|embed|succeed|need|exceed|proceed|seed)$)_?(?:[a-z]+ed|told|kept|said|held|gone|known|shown|given|taken"
    r"|made|sent|left|begun|done|seen|built|spent|lost|met|heard|written|drawn|chosen|broken|brought|driven|hidden|forgotten)"
)

Rule = Callable[[str, str], Iterator[str]]


def store_stands_alone(path: str, text: str) -> Iterator[str]:
    """store/ is a library: it knows neither the service nor anything of HTTP or the API."""
    if path.startswith("store/"):
        yield from (name for name in imports(path, text) if within(name, ("service", *WEB)))


def pure_rooms_are_pure(path: str, text: str) -> Iterator[str]:
    """PURE does no I/O and knows no clock, no chance and no environment: they are passed in."""
    if path.startswith(PURE):
        allowed = (*PURE_BESIDES_STDLIB, "openai.types") if path == WIRE else PURE_BESIDES_STDLIB
        for name in imports(path, text):
            pure = name.partition(".")[0] in sys.stdlib_module_names and not within(name, IMPURE)
            if not pure and not within(name, allowed):
                yield name
        for node in nodes(text):
            if isinstance(node, ast.Attribute) and node.attr in CLOCKS:
                yield f".{node.attr}"


def openai_is_for_types_on_the_wire(path: str, text: str) -> Iterator[str]:
    """The SDK lends its types to one file, and the reference Harmony library is for tests alone."""
    for name in imports(path, text):
        if within(name, ("openai_harmony",)) or (within(name, ("openai",)) and path != WIRE):
            yield name


def engines_know_no_http_and_no_store(path: str, text: str) -> Iterator[str]:
    """An engine samples tokens: who asked, and where the answer is kept, is nothing to it."""
    if path.startswith("service/engine/"):
        yield from (name for name in imports(path, text) if within(name, ("service.web", "store", *WEB)))


def settings_alone_read_the_environment(path: str, text: str) -> Iterator[str]:
    """The environment is read once, at start, by the settings."""
    if path not in (*SETTINGS, SESSIONS, GUEST, CLIENT):
        for node in nodes(text):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"):
                yield f"os.{node.attr}"
        yield from (name for name in imports(path, text) if within(name, ("os.environ", "os.getenv", "dotenv")))


def one_thing_has_one_name(path: str, text: str) -> Iterator[str]:
    """A name that was replaced is not used again."""
    old = {
        *PurePosixPath(path).with_suffix("").parts,
        *(name for node in nodes(text) for name in names(node)),
    }
    yield from (f"{name}: say {OLD_NAMES[name]}" for name in sorted(old & OLD_NAMES.keys()))


def prose_is_plain(path: str, text: str) -> Iterator[str]:
    """Comments, messages and documents use the field's word."""
    if re.match(r"(service|store|docs)/|[A-Z]+\.md$", path):
        for phrase, plain in OLD_WORDS.items():
            yield from (f"{found[0]}: say {plain}" for found in re.finditer(phrase, text, re.IGNORECASE))


def docstrings_begin_with_their_subject(path: str, text: str) -> Iterator[str]:
    """A docstring names what it tells of as a noun, or says what happens: it begins with no relative clause."""
    yield from (found[0] for found in re.finditer(r'"""(?:What|Who|Whose|That|Whoever|Whatever) .*', text))


def values_have_verbs_or_nouns(path: str, text: str) -> Iterator[str]:
    """A function that gives a value is called by a verb or by a noun. A participle says what is so (`matched`), or what
    has happened (`ended`): it is for properties, truths and notes.
    """
    for node in nodes(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and PARTICIPLE.fullmatch(node.name):
            gives = "None" if node.returns is None else ast.unparse(node.returns)
            if gives not in ("bool", "None") and not any(
                "property" in ast.unparse(each) for each in node.decorator_list
            ):
                yield node.name


def locks_name_no_registry(path: str, text: str) -> Iterator[str]:
    """A lock file says what is installed, never from where: that is each machine's own affair."""
    if LOCKS.fullmatch(path):
        yield from (found.group() for found in REGISTRY.finditer(text))


def no_file_knows_a_machine(path: str, text: str) -> Iterator[str]:
    """Nothing depends on where somebody's checkout happens to be."""
    yield from (found.group() for found in MACHINE_PATH.finditer(text))


CODE_RULES: tuple[Rule, ...] = (
    store_stands_alone,
    pure_rooms_are_pure,
    openai_is_for_types_on_the_wire,
    engines_know_no_http_and_no_store,
    settings_alone_read_the_environment,
    one_thing_has_one_name,
    docstrings_begin_with_their_subject,
    values_have_verbs_or_nouns,
)
TEXT_RULES: tuple[Rule, ...] = (prose_is_plain, locks_name_no_registry, no_file_knows_a_machine)


def imports(path: str, text: str) -> Iterator[str]:
    """The full name of everything that a module imports, wherever in it."""
    package = PurePosixPath(path).parent.parts
    for node in nodes(text):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join((*above, *([node.module] if node.module else [])))
            yield from (f"{origin}.{alias.name}" for alias in node.names)


@cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    """The syntax of a file, each piece of it."""
    return tuple(ast.walk(ast.parse(text)))


def names(node: ast.AST) -> Iterator[str]:
    """The names that a piece of syntax has: of what it defines, reads, passes or imports."""
    for field in ("id", "attr", "name", "arg", "asname"):
        if isinstance(name := getattr(node, field, None), str):
            yield name.strip("_")


def within(name: str, modules: tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


@cache
def files(folder: Path = ROOT) -> tuple[tuple[str, str], ...]:
    """Every text file of the project: its path from the root, and its text."""
    return tuple(read(folder))


def read(folder: Path) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir()):
        if entry.name in PASSED_OVER or entry.name.endswith((".egg-info", "_cache")):
            continue
        if entry.is_dir():
            yield from read(entry)
        elif b"\0" not in (content := entry.read_bytes()):
            yield entry.relative_to(ROOT).as_posix(), content.decode()


@pytest.mark.parametrize("rule", CODE_RULES + TEXT_RULES, ids=lambda rule: rule.__name__)
def test_the_tree_keeps_the_rule(rule: Rule) -> None:
    code = rule in CODE_RULES
    read = [(path, text) for path, text in files() if not code or re.match(r"(store|service)/.*\.py$", path)]
    assert len(read) > 10
    assert [f"{path}: {breach}" for path, text in read for breach in rule(path, text)] == []


BREACHES: list[tuple[Rule, str, str]] = [
    (store_stands_alone, "store/x.py", "from service.settings import Settings"),
    (store_stands_alone, "store/x.py", "def f():\n    import fastapi"),
    (pure_rooms_are_pure, "service/harmony/x.py", "import time"),
    (pure_rooms_are_pure, "service/harmony/x.py", "from store import history"),
    (pure_rooms_are_pure, "service/harmony/x.py", "from ..engine.port import Engine"),
    (pure_rooms_are_pure, "service/harmony/x.py", "import redis"),
    (pure_rooms_are_pure, "service/harmony/x.py", "import datetime as d\nd.datetime.now()"),
    (openai_is_for_types_on_the_wire, "service/harmony/x.py", "from openai.types import responses"),
    (openai_is_for_types_on_the_wire, "service/responses/run.py", "import openai_harmony"),
    (engines_know_no_http_and_no_store, "service/engine/x.py", "from ..web import app"),
    (settings_alone_read_the_environment, "service/app.py", "import os\nos.environ['X']"),
    (settings_alone_read_the_environment, "store/x.py", "from os import getenv"),
    (one_thing_has_one_name, "service/x.py", "def _poke(): ..."),
    (one_thing_has_one_name, "service/outgrown.py", ""),
    (one_thing_has_one_name, "store/x.py", "f(mending=1)"),
    (prose_is_plain, "README.md", "More are Told to come back."),
    (docstrings_begin_with_their_subject, "service/x.py", 'def f() -> int:\n    """What is left."""\n    return 1'),
    (values_have_verbs_or_nouns, "service/x.py", "class A:\n    async def shortened(self) -> str: ..."),
    (locks_name_no_registry, "requirements/x.txt", "--index-url https://host/simple"),
    (locks_name_no_registry, "package-lock.json", '"resolved": "https://host/x.tgz"'),
    (no_file_knows_a_machine, "README.md", "see /" + "root/notes"),
    (no_file_knows_a_machine, "bench/x.py", "open('/" + "work/x')"),
]


def test_a_breach_of_the_rule_is_found() -> None:
    assert {rule for rule, _, _ in BREACHES} == {*CODE_RULES, *TEXT_RULES}
    for rule, path, snippet in BREACHES:
        assert list(rule(path, snippet)), (rule.__name__, snippet)


LET_THROUGH: list[tuple[Rule, str, str]] = [
    (store_stands_alone, "store/x.py", "import redis\nfrom .turn import Turn\nimport service_of_others"),
    (pure_rooms_are_pure, "service/harmony/x.py", "import re\nfrom .tokens import encode\nfrom store.turn import Turn"),
    (pure_rooms_are_pure, WIRE, "from openai.types.responses import Response"),
    (settings_alone_read_the_environment, SETTINGS[0], "import os\nos.environ"),
    (one_thing_has_one_name, "service/x.py", "repair = turns.mended # poke"),
    (prose_is_plain, "docs/x.md", "It is told what to do."),
    (docstrings_begin_with_their_subject, "service/x.py", 'def f() -> int:\n    """The rest of what is left."""'),
    (values_have_verbs_or_nouns, "service/x.py", "def ended() -> None: ...\ndef matched() -> bool: ..."),
    (values_have_verbs_or_nouns, "service/x.py", "class A:\n    @property\n    def cached(self) -> int: ..."),
    (values_have_verbs_or_nouns, "service/x.py", "def read() -> str: ...\ndef embed() -> str: ..."),
    (locks_name_no_registry, "README.md", "https://example.com"),
    (no_file_knows_a_machine, "README.md", "tests/work/ and network/root/x"),
]


def test_a_text_that_the_rule_allows_is_let_through() -> None:
    for rule, path, snippet in LET_THROUGH:
        assert list(rule(path, snippet)) == [], rule.__name__


def test_a_type_has_a_name_of_its_own() -> None:
    where: dict[str, list[str]] = {}
    for path, text in files():
        if re.match(r"(store|service)/.*\.py$", path):
            for name in re.findall(r"^class ([A-Z]\w*)", text, re.MULTILINE):
                where.setdefault(name, []).append(path)
    assert {name: paths for name, paths in where.items() if len(paths) > 1} == {}


def test_every_room_has_its_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [layer for contract in contracts if contract["type"] == "layers" for layer in contract["layers"]]
    rooms = {
        f"{path.parts[-3]}.{path.parts[-2]}" for top in ("service", "store") for path in (ROOT / top).glob("*/*.py")
    }
    assert rooms <= {name for layer in layers for name in re.split(r"\s*:\s*", layer)}
