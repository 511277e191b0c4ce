"""The settings of the engine, and the engines that an operator lists in a file: the models, and the engine that
samples each of them.

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
from typing import Annotated, Any, Literal, Self, cast

import msgspec
from msgspec import Meta
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr, model_validator

from service.engine.port import AUTO, FAMILY_NAMES, HARMONY, SERVER
from service.settings.group import SecretKey, SettingsGroup, WholePath, Words, each_is, shown_as
from service.settings.sources import MAX_SECRET_BYTES, PREFIX, environment
from service.settings.urls import MASK, server_url

MAX_FILE_BYTES = 1 << 20
MAX_ENGINES = 64
MAX_NAMES = 64
MAX_WEIGHT = 1000
MAX_MODEL_ALIASES = 64
MAX_SERVERS = 64
MAX_KEEPS = 8
LEAST_CONTEXT_TOKENS = 1024

ENGINE_URLS = {
    "vllm": "http://127.0.0.1:8001",
    "llama": "http://127.0.0.1:8080",
    "chat": "http://127.0.0.1:8001",
}
VLLM_MODEL = "openai/gpt-oss-20b"

ENGINE_NAMES = {
    "vllm": "vLLM",
    "llama": "llama.cpp",
    "chat": "Chat Completions",
}

REPLACED = ("engine", "engine_url", "engine_api_key", "model", "model_aliases", "context_tokens")
"""The settings that the file of several engines replaces."""

MARKUPS = (AUTO, HARMONY, *FAMILY_NAMES)

DEMO = "demo"
"""The kind of engine that has no servers and no model. Its own name, with which each name that it is given begins."""

DEMO_MODEL = "gpt-oss-20b"
"""The model that the demo engine stands in for where nothing names an engine."""

ONLY_DEMO = f"{{!r}} is a model's name, and the demo engine has no model: its names begin with {DEMO}"

CHAT = "chat"
"""The kind of servers that are asked by Chat Completions alone."""

KINDS = (*ENGINE_URLS, DEMO)

LEAST_OUTPUT_TOKENS = 16
"""No response may have fewer, as no request may ask for fewer."""

_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,256}")
_KEY = re.compile(r"[\x21-\x7e]{1,512}")
_SECRET = re.compile(r"token$|key|password|secret")
"""The pattern of an engine argument's name whose value nobody should see."""

_TABLE = re.compile(r"^[ \t]*\[\[[ \t]*engines[ \t]*\]\]", re.MULTILINE)
_AT = re.compile(r" - at `\$\.engines\[(\d+)\](?:\.(\w+))?[^`]*`$")

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Count = Annotated[int, Meta(ge=0, le=16_777_216)]


class EngineEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine as the file has it. `model` is its servers' name of the model, where that isn't `name`; `weights` has a
    number for each of `urls`. 0 for `connections`, `kv_tokens`, `context_tokens` and `max_output_tokens` means unset.
    `sees` is whether the model sees pictures, where its servers don't say so themselves, and `keeps` are the options by
    which its template keeps earlier reasoning; None where its servers show them.
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
    keeps: Annotated[dict[Annotated[str, Meta(max_length=64)], bool], Meta(max_length=MAX_KEEPS)] | None = None
    weights: tuple[Annotated[float, Meta(gt=0, le=MAX_WEIGHT)], ...] = ()


class ListedEngine(msgspec.Struct, frozen=True):
    """An engine of the file that was found right, with the key that its servers ask for."""

    listed: EngineEntry
    urls: tuple[str, ...]
    api_key: SecretStr

    @property
    def model(self) -> str:
        return self.listed.model or self.listed.name

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of the engine: all but the addresses of its servers, and their weights."""
        listed, secret = self.listed, sha256(self.api_key.get_secret_value().encode()).hexdigest()
        context, sees, keeps = str(listed.context_tokens), str(listed.sees), str(listed.keeps)
        return listed.name, listed.kind, self.model, listed.markup, context, sees, keeps, secret


class BadEngines(ValueError):
    """The file of engines can't be used: the line that is wrong, and why."""


class _Wrong(Exception):
    """A fault in a field of an engine."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


def read_engines(path: Path) -> tuple[ListedEngine, ...]:
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
    for field, name in (("name", each.name), *(("aliases", alias) for alias in each.aliases)):
        if not _NAME.fullmatch(name):
            raise _Wrong(field, f"{name[:60]!r} is no name of a model: 1 to 256 of A-Z a-z 0-9 . _ : / -")
        if name in names:
            raise _Wrong(field, f"{name!r} is a name of the engine {names[name]!r} already")
        names[name] = each.name


def _check(each: EngineEntry) -> ListedEngine:
    if each.kind not in KINDS:
        raise _Wrong("kind", f"there is no kind {each.kind[:60]!r} of engine; it is one of {', '.join(KINDS)}")
    if each.markup not in MARKUPS:
        raise _Wrong("markup", f"there is no markup {each.markup[:60]!r}; it is one of {', '.join(MARKUPS)}")
    if each.markup == SERVER and each.kind == DEMO:
        raise _Wrong("markup", "the demo engine has no servers that could read a model: leave it out")
    if each.kind == CHAT and each.markup not in (AUTO, SERVER):
        raise _Wrong("markup", f"servers of kind '{CHAT}' read their model themselves: leave it out")
    if each.sees and each.kind != CHAT and each.markup != SERVER:
        raise _Wrong("sees", f"only a model whose server makes its prompts can see pictures: set markup = '{SERVER}'")
    if 0 < each.context_tokens < LEAST_CONTEXT_TOKENS:
        raise _Wrong("context_tokens", f"should be 0, or at least {LEAST_CONTEXT_TOKENS:,}")
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
            server_url(url, "put the key into api_key_env or api_key_file")
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


def _zero_or_context(tokens: int) -> int:
    if 0 < tokens < LEAST_CONTEXT_TOKENS:
        raise ValueError(f"should be 0, or at least {LEAST_CONTEXT_TOKENS}")
    return tokens


def _engine_args(value: object) -> object:
    try:
        parsed = json.loads(value or "{}") if isinstance(value, str) else value
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError('should be a JSON object, such as {"max_model_len": 32768} is for vLLM')
    return cast(dict[str, object], parsed)


def _engine_urls(urls: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(server_url(each, f"put the key into {PREFIX}ENGINE_API_KEY") for each in urls)


def _show_args(args: dict[str, object]) -> str:
    return json.dumps({name: MASK if _SECRET.search(name) else each for name, each in args.items()})


class EngineSettings(SettingsGroup):
    """The engine that samples tokens, or several."""

    heading = "Engine"
    _listed: tuple[ListedEngine, ...] = PrivateAttr(())

    engine: Literal["demo", "vllm", "vllm-local", "llama", "llama-local", "chat"] = "demo"
    """The engine that samples tokens: `demo`, a stand-in without a GPU; servers of `vllm` or `llama`;
    `vllm-local` and `llama-local`, started here; `chat`, any Chat Completions."""
    model: str = Field("", max_length=256)
    """Id of the served model. Empty is the server's first, LOCAL_MODEL for `vllm-local`, its file's name for
    `llama-local`, `demo` for the demo engine, whose names begin with `demo`."""
    context_tokens: Annotated[int, AfterValidator(_zero_or_context)] = Field(0, ge=0, le=16_777_216)
    """The most tokens of prompt and output together, at least 1,024; never more than a server's own limit. 0 is the
    engine's limit. Needed for routers and most `chat` servers, which report none."""
    engine_url: Annotated[Words, AfterValidator(_engine_urls)] = Field((), max_length=MAX_SERVERS, repr=False)
    """The servers, comma-separated, with the same model. dns+http://vllm:8000 is a server at each address of the
    host. Empty is http://127.0.0.1:8001, port 8080 for `llama`."""
    engine_api_key: SecretKey = SecretStr("")
    """The servers' key. Empty sends none."""
    engines: WholePath = Field("", max_length=4096)
    """File of several engines, each with its model and its servers; a request's `model` chooses. It replaces ENGINE,
    ENGINE_*, MODEL, MODEL_ALIASES and CONTEXT_TOKENS. Empty is one engine."""
    chats: Literal["pass-on", "remember", "refuse"] = "pass-on"
    """Chat Completions, Messages and the like: `pass-on` passes them to the engine's server; `remember` answers and
    stores them here, and matches histories to stored conversations; `refuse` refuses them."""
    local_model: str = Field("", max_length=4096)
    """The model of `vllm-local` or `llama-local`. For vLLM a name or a folder, by default openai/gpt-oss-20b; for
    llama.cpp a GGUF file, or `smol`: SmolLM2-135M."""
    local_args: Annotated[dict[str, Any], BeforeValidator(_engine_args), shown_as(_show_args)] = Field({}, repr=False)
    """Arguments as a JSON object: for `vllm-local` by the names of vLLM's AsyncEngineArgs, for `llama-local` by those
    of xllamacpp's CommonParams, such as n_parallel and n_gpu_layers."""
    demo_tokens_per_second: float = Field(0, ge=0, le=1_000_000)
    """Pace of the demo engine; 0 is full speed."""
    model_aliases: Annotated[Words, each_is(_NAME.fullmatch, "name of a model: 1 to 256 of A-Z a-z 0-9 . _ : / -")] = (
        Field((), max_length=MAX_MODEL_ALIASES)
    )
    """Other names of the model for clients, comma-separated, such as gpt-4o. A gpt-oss model also has openai/<id>,
    its name at Hugging Face."""

    @model_validator(mode="before")
    @classmethod
    def _servers_are_vllm(cls, given: dict[str, object]) -> dict[str, object]:
        """Servers without an engine that names their kind are vLLM's."""
        alone = given.get("engine_url") and not {"engine", "engines"} & given.keys()
        return {**given, "engine": "vllm"} if alone else given

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if self.engine == "llama-local" and not self.local_model:
            raise ValueError(f"{PREFIX}ENGINE=llama-local needs {PREFIX}LOCAL_MODEL, a GGUF file; set it")
        if len(set(self.engine_url)) < len(self.engine_url):
            raise ValueError(f"{PREFIX}ENGINE_URL names a server twice")
        named = self.engine == DEMO and not (self.stands_in or self.engines)
        if named and (name := no_name_of_demo(self.model, *self.model_aliases)):
            setting = "MODEL" if name == self.model else "MODEL_ALIASES"
            raise ValueError(f"{PREFIX}{setting}: {ONLY_DEMO.format(name)}; set {PREFIX}ENGINE to the model's engine")
        self._read_engines()
        return self

    @property
    def stands_in(self) -> bool:
        """Whether the demo engine answers under the name of a model, too: as long as nothing names an engine."""
        return self.engine == DEMO and not (self.engines or self.model or "engine" in self.model_fields_set)

    @property
    def engine_urls(self) -> tuple[str, ...]:
        return self.engine_url or (ENGINE_URLS[self.engine],)

    @property
    def loaded_model(self) -> str:
        """The model that an engine in this process, or beside it, loads."""
        return self.local_model or (VLLM_MODEL if self.engine == "vllm-local" else "")

    @property
    def listed_engines(self) -> tuple[ListedEngine, ...]:
        """The engines of the file that ENGINES names, as it was when these settings were read."""
        return self._listed

    @property
    def rereads(self) -> bool:
        return bool(self.engines) or super().rereads

    def _read_engines(self) -> None:
        if not self.engines:
            return
        for name in REPLACED:
            if getattr(self, name) != EngineSettings.model_fields[name].get_default(call_default_factory=True):
                raise ValueError(
                    f"{PREFIX}{name.upper()} is for one engine, and {PREFIX}ENGINES names several: set it in "
                    f"{self.engines}, and leave {PREFIX}{name.upper()} out"
                )
        try:
            self._listed = read_engines(Path(self.engines))
        except BadEngines as error:
            raise ValueError(f"{PREFIX}ENGINES={self.engines}: {error}") from None
