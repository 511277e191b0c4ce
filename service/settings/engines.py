"""The engines that an operator lists in a file: the models, and the engine that samples each of them.

The file is TOML, or JSON where its name ends with .json; the first engine is that of requests that name no model:

    [[engines]]
    name = "gpt-oss-20b"
    kind = "vllm"
    urls = ["http://10.0.0.5:8001", "http://10.0.0.6:8001"]
    weights = [2, 1]
    model = "openai/gpt-oss-20b"
    aliases = ["gpt-4o-mini"]
    api_key_file = "/run/secrets/vllm"

    [[engines]]
    name = "gpt-oss-120b"
    kind = "llama"
    urls = ["http://10.0.0.7:8080"]
    context_tokens = 65536
    max_output_tokens = 8192

The whole file is read before any of it counts. An error names its line, and never shows a key.
"""

import json
import re
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Annotated, cast

import msgspec
from msgspec import Meta
from pydantic import SecretStr

from service.engine.port import AUTO, HARMONY, SERVER
from service.markup.families import FAMILIES
from service.settings.core import (
    ENGINE_URLS,
    LEAST_CONTEXT_TOKENS,
    MAX_SERVERS,
    PREFIX,
    UNSAID_CONTEXT,
    environment,
    server_url,
)
from service.settings.sources import MAX_SECRET_BYTES

MAX_FILE_BYTES = 1 << 20
MAX_ENGINES = 64
MAX_NAMES = 64
MAX_WEIGHT = 1000

MARKUPS = (AUTO, HARMONY, *FAMILIES)
"""The ways to write a model's turns as tokens."""

DEMO = "demo"
"""The kind of engine that has no servers and no model. Its own name, with which each name that it is given begins."""

ONLY_DEMO = f"{{!r}} is a model's name, and the demo engine has no model: its names begin with {DEMO}"

CHAT = "chat"
"""The kind of servers that are asked by Chat Completions alone."""

READ_BY_SERVERS = (CHAT, "vllm", "llama")
"""The kinds whose servers may read their model themselves."""

KINDS = (*ENGINE_URLS, DEMO)

LEAST_OUTPUT_TOKENS = 16
"""No response may have fewer, as no request may ask for fewer."""

_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,256}")
_KEY = re.compile(r"[\x21-\x7e]{1,512}")
_TABLE = re.compile(r"^[ \t]*\[\[[ \t]*engines[ \t]*\]\]", re.MULTILINE)
_AT = re.compile(r" - at `\$\.engines\[(\d+)\](?:\.(\w+))?[^`]*`$")

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Count = Annotated[int, Meta(ge=0, le=16_777_216)]


class EngineEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine as the file has it. `model` is its servers' name of the model, where that isn't `name`; `weights` has a
    number for each of `urls`. 0 for `connections`, `kv_tokens`, `context_tokens` and `max_output_tokens` means unset.
    `sees` is whether the model sees pictures, where its servers don't say so themselves.
    """

    name: Name
    kind: str
    urls: Annotated[tuple[str, ...], Meta(max_length=MAX_SERVERS)] = ()
    model: Annotated[str, Meta(max_length=256)] = ""
    aliases: Annotated[tuple[str, ...], Meta(max_length=MAX_NAMES)] = ()
    markup: str = AUTO
    api_key_env: str = ""
    api_key_file: str = ""
    connections: Annotated[int, Meta(ge=0, le=100_000)] = 0
    kv_tokens: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    context_tokens: Count = 0
    max_output_tokens: Count = 0
    sees: bool = False
    weights: tuple[Annotated[float, Meta(gt=0, le=MAX_WEIGHT)], ...] = ()


class ListedEngine(msgspec.Struct, frozen=True):
    """An engine of the file that was found right, with the key that its servers ask for."""

    listed: EngineEntry
    urls: tuple[str, ...]
    api_key: SecretStr

    @property
    def model(self) -> str:
        """The servers' name of the model."""
        return self.listed.model or self.listed.name

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of the engine: all but the addresses of its servers, and their weights."""
        listed, secret = self.listed, sha256(self.api_key.get_secret_value().encode()).hexdigest()
        context, sees = str(listed.context_tokens), str(listed.sees)
        return listed.name, listed.kind, self.model, listed.markup, context, sees, secret


class BadEngines(ValueError):
    """The file of engines can't be used: the line that is wrong, and why."""


class _Wrong(Exception):
    """A fault in a field of an engine."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


def read_engines(path: Path) -> tuple[ListedEngine, ...]:
    """The engines of a file. Raises BadEngines."""
    try:
        if path.is_fifo():  # whoever opens one waits for its writer, and signals behind that
            raise BadEngines("is a pipe; it has to be a file, which can be read again")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode()
    except OSError as error:
        raise BadEngines(f"can't be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadEngines("is no text in UTF-8") from None
    if len(content) > MAX_FILE_BYTES:
        raise BadEngines(f"has more than {MAX_FILE_BYTES:,} bytes")
    as_json = path.suffix == ".json"
    places = _in_json(text) if as_json else [match.start() for match in _TABLE.finditer(text)]
    listed = _parse(text, places, as_json=as_json)
    engines: list[ListedEngine] = []
    names: dict[str, str] = {}
    for number, each in enumerate(listed):
        try:
            _check_names(each, names)
            engines.append(_check(each))
        except _Wrong as wrong:
            raise BadEngines(f"{_place(text, places, number, wrong.field)}: {wrong}") from None
    return tuple(engines)


def _parse(text: str, places: list[int], *, as_json: bool) -> list[EngineEntry]:
    """The engines as they are written. Raises BadEngines."""
    try:
        found = json.loads(text) if as_json else tomllib.loads(text)
    except json.JSONDecodeError as error:
        raise BadEngines(f"line {error.lineno}: this is no JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is no TOMLDecodeError
        raise BadEngines(f"this is no {'JSON' if as_json else 'TOML'}: {error}") from None
    tables = cast(dict[str, object], found).get("engines") if isinstance(found, dict) else None
    if not isinstance(tables, list) or not tables or len(cast(dict[str, object], found)) > 1:
        raise BadEngines('has to be a list of engines: a table [[engines]] for each, or {"engines": [...]} in JSON')
    if len(cast(list[object], tables)) > MAX_ENGINES:
        raise BadEngines(f"has {len(cast(list[object], tables))} engines, at most {MAX_ENGINES} are possible")
    try:
        return msgspec.convert(found, dict[str, list[EngineEntry]])["engines"]
    except msgspec.ValidationError as error:
        reason = str(error).replace("$[...]", "$.engines", 1)
        at = _AT.search(reason)
        if at is None:
            raise BadEngines(reason) from None
        field = at[2] or next(iter(re.findall(r"unknown field `(\w+)`", reason)), "")
        name = f"{field}: " if field else ""
        raise BadEngines(f"{_place(text, places, int(at[1]), field)}: {name}{reason[: at.start()]}") from None


def _in_json(text: str) -> list[int]:
    """Where in JSON the engines of the list begin."""
    decoder, places = json.JSONDecoder(), list[int]()
    start = re.search(r'"engines"\s*:\s*\[\s*', text)
    place = start.end() if start else len(text)
    while text[place : place + 1] == "{":
        places.append(place)
        try:
            _, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            break
        between = re.compile(r"\s*,?\s*").match(text, end)
        place = between.end() if between else end
    return places


def _place(text: str, places: list[int], number: int, field: str) -> str:
    """The line of a field of an engine, or of the engine; its number where it isn't written as a table of its own."""
    if number >= len(places):
        return f"engine {number + 1}"
    start, end = places[number], [*places[1:], len(text)][number]
    found = re.compile(rf'^[^\S\n]*"?{field}"?\s*[=:]|[{{,]\s*"{field}"\s*:', re.MULTILINE).search(text, start, end)
    offset = found.end() - 1 if found and field else start
    return f"line {text.count(chr(10), 0, offset) + 1}"


def _check_names(each: EngineEntry, names: dict[str, str]) -> None:
    """Note the names of an engine; no other engine may have one of them. Raises _Wrong."""
    for field, name in (("name", each.name), *(("aliases", alias) for alias in each.aliases)):
        if not _NAME.fullmatch(name):
            raise _Wrong(field, f"{name[:60]!r} is no name of a model: 1 to 256 of A-Z a-z 0-9 . _ : / -")
        if name in names:
            raise _Wrong(field, f"{name!r} is a name of the engine {names[name]!r} already")
        names[name] = each.name


def _check(each: EngineEntry) -> ListedEngine:
    """Raises _Wrong."""
    if each.kind not in KINDS:
        raise _Wrong("kind", f"there is no kind {each.kind[:60]!r} of engine; it is one of {', '.join(KINDS)}")
    if each.markup not in MARKUPS:
        raise _Wrong("markup", f"there is no markup {each.markup[:60]!r}; it is one of {', '.join(MARKUPS)}")
    if each.markup == SERVER and each.kind not in READ_BY_SERVERS:
        raise _Wrong("markup", f"servers of {each.kind} are asked to read their model as kind 'chat'; say that")
    if each.kind == CHAT and each.markup not in (AUTO, SERVER):
        raise _Wrong("markup", f"servers of kind '{CHAT}' read their model themselves: leave it out")
    if each.sees and each.kind != CHAT and each.markup != SERVER:
        raise _Wrong("sees", f"only a model whose server makes its prompts is shown pictures: say markup = '{SERVER}'")
    if 0 < each.context_tokens < LEAST_CONTEXT_TOKENS:
        raise _Wrong("context_tokens", f"should be 0, or at least {LEAST_CONTEXT_TOKENS:,}")
    if each.kind == UNSAID_CONTEXT and not each.context_tokens:
        raise _Wrong("kind", f"servers of {each.kind} don't say how long their context is: give context_tokens")
    if 0 < each.max_output_tokens < LEAST_OUTPUT_TOKENS:
        raise _Wrong("max_output_tokens", f"should be 0, or at least {LEAST_OUTPUT_TOKENS}")
    if each.kind == DEMO and (other := no_name_of_demo(each.name, *each.aliases)):
        raise _Wrong("aliases" if other in each.aliases else "name", ONLY_DEMO.format(other))
    if each.kind == DEMO and (each.urls or each.api_key_env or each.api_key_file):
        raise _Wrong("kind", "the demo engine has no servers: leave urls and keys out")
    urls = _urls(each)
    if each.weights and len(each.weights) != len(urls):
        raise _Wrong("weights", f"has {len(each.weights)} numbers for {len(urls)} servers; give one for each")
    return ListedEngine(each, urls, SecretStr(_api_key(each)))


def no_name_of_demo(*names: str) -> str:
    """The first of these names that could be a model's, and is none for the demo engine; empty for no such name."""
    return next((name for name in names if name and not name.startswith(DEMO)), "")


def _urls(each: EngineEntry) -> tuple[str, ...]:
    """The addresses of its servers. Raises _Wrong."""
    if each.kind == DEMO:
        return ()
    try:
        urls = tuple(
            server_url(url, "a key goes into api_key_env or api_key_file")
            for url in each.urls or (ENGINE_URLS[each.kind],)
        )
    except ValueError as error:
        raise _Wrong("urls", str(error)) from None
    if len(set(urls)) < len(urls):
        raise _Wrong("urls", "names a server twice")
    return urls


def _api_key(each: EngineEntry) -> str:
    """The key of its servers, empty where none is named. Raises _Wrong, which shows no key."""
    if each.api_key_env and each.api_key_file:
        raise _Wrong("api_key_file", "give api_key_env or api_key_file, one of the two")
    if each.api_key_env.startswith(PREFIX):
        raise _Wrong("api_key_env", f"names that begin with {PREFIX} are for settings; give it another one")
    if each.api_key_env:
        field, key = "api_key_env", environment([each.api_key_env]).get(each.api_key_env, "")
        if not key:
            raise _Wrong(field, f"the environment has no variable {each.api_key_env[:60]!r}, which has to hold the key")
    elif each.api_key_file:
        field, path = "api_key_file", Path(each.api_key_file)
        try:
            with path.open("rb") as file:
                key = file.read(MAX_SECRET_BYTES).decode(errors="replace").strip("\r\n")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no path"
            raise _Wrong(field, f"{str(path)[:200]} can't be read: {reason}") from None
    else:
        return ""
    if not _KEY.fullmatch(key):
        raise _Wrong(field, "the key has to be 1 to 512 printable ASCII characters, no space")
    return key
