"""The settings of the service: read from where they are set, checked against each other, and shown.

They come from the command line, then from `HARMONIUM_*` in the environment, then from `.env` in the working directory.
They are read once, at start, into one frozen object that is passed on. Never look at the environment anywhere else, and
never print an API key: keys are SecretStr, and `display` masks them.
"""

import difflib
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Self, cast

from pydantic import (
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from service.api.content import PictureBounds
from service.settings.background import RENEWALS, BackgroundSettings
from service.settings.core import (
    DEFAULT_TENANT,
    ENGINE_URLS,
    MASK,
    PREFIX,
    UNSAID_CONTEXT,
    VLLM_MODEL,
    ArchiveSettings,
    CoreSettings,
    is_loopback,
    mask_secrets,
    parse_weights,
)
from service.settings.engines import DEMO, ONLY_DEMO, BadEngines, ListedEngine, no_name_of_demo, read_engines
from service.settings.protocol import ProtocolSettings, SandboxSettings
from service.settings.sources import (
    CLIENTS,
    DAY_SECONDS,
    EXAMPLES,
    RENEWED,
    SECRETS,
    EnvFileError,
    Given,
    SecretError,
    file_variable,
    in_unit,
    read_secrets,
    unit_of,
    with_unit,
)
from store.redis.confirm import CONFIRM_SECONDS

MAX_QUEUED_REQUESTS = 256
"""Requests for a response that wait in one process; more are refused with 503."""

MAX_FOLLOWERS = 2048
"""Streams of background responses that one process has open at once, which take no slot of MAX_CONCURRENT_REQUESTS."""

MAX_SOCKETS = 1024
"""WebSockets that one process has open at once."""

SPARE_CONNECTIONS = 256
"""The connections of one process beside those: idle ones, and requests that are about to be refused."""

BODIES = 6
"""How many of the largest bodies one process has at once."""

CHAINS_KEPT = 4
"""How many of the largest conversations the memory has to have room for."""

PREPARING_SECONDS = 60
"""The time of a pin beyond the run itself: for building the prompt, and for storing the turn."""

STORE_LIMITS = (
    *("max_responses", "max_trees", "max_bytes", "idle_days", "conversation_idle_days"),
    *("max_log_bytes", "stream_retention_seconds"),
)
"""The limits by which one process deletes what all others keep: they have to be the same for all."""

REPLACED = ("engine", "engine_url", "engine_api_key", "model", "model_aliases", "context_tokens")
"""The settings that the file of several engines replaces."""

LEASE_TIMEOUTS = 2 * RENEWALS / (RENEWALS - 1)
"""The times of the store's time limit that a lease is longer than, as follows from Settings.renewed_seconds."""

GROUPS = {
    "Serving": "host",
    "Engine": "engine",
    "Store": "store",
    "What is kept": "max_responses",
    "Requests and connections": "max_body_bytes",
    "Log": "log_level",
    "What the API offers": "seal_keys",
    "Background responses": "worker",
    "Webhooks": "webhook_url",
    "Metrics": "metrics_key",
    "Traces": "traces_url",
    "Sandbox": "sandbox",
    "Archive": "archive_url",
}
"""Headings, each with the first of its settings, in the order of definition."""

MAX_SHOWN_CHARS = 100
"""How much of a value an error shows."""

UNSHOWN = frozenset(
    {
        "api_keys",
        "redis_url",
        "engine_url",
        "local_args",
        "webhook_url",
        "seal_keys",
        "traces_url",
        "archive_url",
    }
)
"""The settings, besides SecretStr, whose values no error shows: they might be secrets, or have one in them."""

_SECRET = re.compile(r"token$|key|password|secret")
"""The pattern of an engine argument's name whose value nobody should see."""


class SettingsError(Exception):
    """The settings can't be used. The message is one line: each variable, the reason, the way out."""


class Settings(ArchiveSettings, SandboxSettings, BackgroundSettings, ProtocolSettings, CoreSettings):
    """Everything that can be set."""

    _files: dict[str, Path] = PrivateAttr(default_factory=dict[str, Path])
    _listed: tuple[ListedEngine, ...] = PrivateAttr(())

    @field_validator("*", mode="before")
    @classmethod
    def _read_units(cls, value: object, info: ValidationInfo) -> object:
        return in_unit(info.field_name or "", value)

    @model_validator(mode="before")
    @classmethod
    def _servers_are_vllm(cls, given: dict[str, object]) -> dict[str, object]:
        """Servers without an engine that names their kind are vLLM's."""
        alone = given.get("engine_url") and not {"engine", "engines"} & given.keys()
        return {**given, "engine": "vllm"} if alone else given

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        """Check the settings against each other. Raises ValueError for the first rule that is broken."""
        self._check_doors()
        self._check_engine()
        self._check_store()
        self._read_engines()
        self._check_search()
        self._check_tenants()
        self._check_sandboxes()
        return self

    def _check_doors(self) -> None:
        if not self.has_keys and not is_loopback(self.host):
            raise ValueError(
                f"{PREFIX}HOST={self.host} can be reached from other machines, but no API key is set, "
                f"so anybody could read every conversation; set {PREFIX}API_KEYS, or listen on 127.0.0.1"
            )
        if self.cors_origins and not self.has_keys:
            raise ValueError(
                f"{PREFIX}CORS_ORIGINS lets web pages call the service, but no API key is set, so each of them could "
                f"read every conversation of whoever visits it; set {PREFIX}API_KEYS"
            )
        if self.webhook_url and not self.webhook_secret.get_secret_value():
            raise ValueError(
                f"{PREFIX}WEBHOOK_URL is set without {PREFIX}WEBHOOK_SECRET, so webhooks could be forged; set "
                "it to whsec_ and what `openssl rand -base64 32` prints"
            )

    def _check_engine(self) -> None:
        if self.engine.endswith("-local") and self.workers > 1:
            raise ValueError(
                f"{PREFIX}WORKERS={self.workers} would load the model {self.workers} times with "
                f"{PREFIX}ENGINE={self.engine}; set it to 1, or run a server"
            )
        if self.engine == "llama-local" and not self.local_model:
            raise ValueError(f"{PREFIX}ENGINE=llama-local needs {PREFIX}LOCAL_MODEL, a GGUF file; set it")
        if self.engine == UNSAID_CONTEXT and not self.context_tokens:
            raise ValueError(
                f"{PREFIX}ENGINE={self.engine} needs {PREFIX}CONTEXT_TOKENS, as its servers don't say how long their "
                "context is; set it to their --max_seq_len"
            )
        if len(set(self.engine_url)) < len(self.engine_url):
            raise ValueError(f"{PREFIX}ENGINE_URL names a server twice")
        named = self.engine == DEMO and not (self.stands_in or self.engines)
        if named and (name := no_name_of_demo(self.model, *self.model_aliases)):
            setting = "MODEL" if name == self.model else "MODEL_ALIASES"
            raise ValueError(f"{PREFIX}{setting}: {ONLY_DEMO.format(name)}; set {PREFIX}ENGINE to the model's engine")

    def _check_store(self) -> None:
        if self.store_replicas and not self.redis_url:
            raise ValueError(
                f"{PREFIX}STORE_REPLICAS={self.store_replicas} needs replicas, and the embedded server has none; set "
                f"{PREFIX}REDIS_URL, or {PREFIX}STORE_REPLICAS to 0"
            )
        if 0 < self.idle_days * DAY_SECONDS <= self.pin_seconds:
            raise ValueError(
                f"{PREFIX}IDLE_DAYS={self.idle_days:g} is {self.idle_days * DAY_SECONDS:g} s, and one response may "
                f"take {self.pin_seconds:g} s: its conversation could be deleted meanwhile; set it to more, or to 0"
            )
        if self.conversation_idle_days and not 0 < self.idle_days <= self.conversation_idle_days:
            raise ValueError(
                f"{PREFIX}CONVERSATION_IDLE_DAYS={self.conversation_idle_days:g} is less than {PREFIX}IDLE_DAYS="
                f"{self.idle_days:g} (0 is for ever), and responses in a conversation stay as long as any; set it to "
                "no less, or to 0"
            )
        if 0 < self.max_bytes < CHAINS_KEPT * self.max_chain_bytes:
            raise ValueError(
                f"{PREFIX}MAX_BYTES={self.max_bytes} has no room for {CHAINS_KEPT} conversations of "
                f"{PREFIX}MAX_CHAIN_BYTES={self.max_chain_bytes}; raise the first, or lower the second"
            )
        if self.lease_seconds <= self.renewed_seconds:
            raise ValueError(
                f"{PREFIX}LEASE_SECONDS={self.lease_seconds:g} is too short for {PREFIX}STORE_TIMEOUT_SECONDS="
                f"{self.store_timeout_seconds:g}: a quarter of it passes between two renewals, and each may take the "
                f"timeout, {self.renewed_seconds:g} s in all, so a worker whose store is slow would lose its "
                f"jobs; set it to more than {LEASE_TIMEOUTS:.2f} times the timeout"
            )

    @property
    def stands_in(self) -> bool:
        """Whether the demo engine answers under the name of a model, too: as long as nothing names an engine."""
        return self.engine == DEMO and not (self.engines or self.model or "engine" in self.model_fields_set)

    @property
    def engine_urls(self) -> tuple[str, ...]:
        """The addresses of the engine's servers."""
        return self.engine_url or (ENGINE_URLS[self.engine],)

    @property
    def loaded_model(self) -> str:
        """The model that an engine in this process, or beside it, loads."""
        return self.local_model or (VLLM_MODEL if self.engine == "vllm-local" else "")

    @property
    def listed_engines(self) -> tuple[ListedEngine, ...]:
        """The engines of the file that ENGINES names, as it was when these settings were read."""
        return self._listed

    def _read_engines(self) -> None:
        if not self.engines:
            return
        for name in REPLACED:
            if getattr(self, name) != Settings.model_fields[name].get_default(call_default_factory=True):
                raise ValueError(
                    f"{PREFIX}{name.upper()} is for one engine, and {PREFIX}ENGINES names several: say it there, in "
                    f"{self.engines}, and leave {PREFIX}{name.upper()} out"
                )
        try:
            self._listed = read_engines(Path(self.engines))
        except BadEngines as error:
            raise ValueError(f"{PREFIX}ENGINES={self.engines}: {error}") from None

    def _check_search(self) -> None:
        needed = {"searxng": "search_url", "folder": "search_folder"}.get(self.search, "search_key")
        given = self.search_key.get_secret_value() if needed == "search_key" else getattr(self, needed)
        if self.search != "none" and not given:
            raise ValueError(f"{PREFIX}SEARCH={self.search} needs {PREFIX}{needed.upper()}; set it")

    def _check_tenants(self) -> None:
        for name, named in (("PRIORITY_TENANTS", self.priority_tenants), ("TENANT_WEIGHTS", self.weights)):
            unknown = set(named) - self.tenants
            if unknown and not self.has_projects:
                raise ValueError(
                    f"{PREFIX}{name} names {', '.join(sorted(unknown))}, of which {PREFIX}API_KEYS has no key; add "
                    "one, or leave the tenant out"
                )
        if self.admin_key == self.metrics_key != SecretStr(""):
            raise ValueError(f"{PREFIX}ADMIN_KEY is {PREFIX}METRICS_KEY, too, which scrapers have; make another one")
        if any(each.key == self.admin_key for each in self.api_keys):
            raise ValueError(
                f"{PREFIX}ADMIN_KEY is one of {PREFIX}API_KEYS, too, and an administrator's key is for nothing else; "
                "make another one"
            )

    def _check_sandboxes(self) -> None:
        if self.sandbox == "local" and self.workers > 1:
            raise ValueError(
                f"{PREFIX}SANDBOX=local gives each process sessions that the others don't know, and {PREFIX}WORKERS="
                f"{self.workers}; run `harmonium sandbox` and name where it listens, or set {PREFIX}WORKERS to 1"
            )
        if self.sandbox_tenant_sessions > self.sandbox_sessions:
            raise ValueError(
                f"{PREFIX}SANDBOX_TENANT_SESSIONS={self.sandbox_tenant_sessions} is more than all "
                f"{PREFIX}SANDBOX_SESSIONS={self.sandbox_sessions}; lower the first, or raise the second"
            )

    @property
    def max_connections(self) -> int:
        """The most connections of one process, idle ones and open streams included; more are hung up on."""
        requests = self.max_concurrent_requests + MAX_QUEUED_REQUESTS
        return requests + MAX_FOLLOWERS + MAX_SOCKETS + SPARE_CONNECTIONS

    @property
    def tenants(self) -> set[str]:
        """The names of the tenants."""
        return {each.tenant for each in self.api_keys} or {DEFAULT_TENANT}

    @property
    def several_tenants(self) -> bool:
        """Whether there is more than one tenant, or may be once somebody makes a project."""
        return len(self.tenants) > 1 or self.has_projects

    @property
    def static_tenants(self) -> tuple[str, ...]:
        """The tenants that have keys here, in order."""
        return tuple(sorted({each.tenant for each in self.api_keys}))

    @property
    def weights(self) -> dict[str, float]:
        """The weights of those tenants that have one."""
        return parse_weights(self.tenant_weights)

    @property
    def has_projects(self) -> bool:
        """Whether there are projects and keys in the store."""
        return self.projects or bool(self.admin_key.get_secret_value())

    @property
    def has_limits(self) -> bool:
        """Whether tenants may have limits."""
        return self.has_projects or bool(self.tenant_limits)

    @property
    def refuses(self) -> bool:
        """Whether images, and tools that OpenAI runs, are refused instead of left out."""
        return self.unsupported == "refuse"

    @property
    def picture_bounds(self) -> PictureBounds | None:
        """The bounds of pictures; None where images are refused."""
        return None if self.refuses else PictureBounds(**self.pictures)

    @property
    def has_keys(self) -> bool:
        """Whether a request needs a key."""
        return bool(self.api_keys) or self.has_projects

    @property
    def rereads(self) -> bool:
        """Whether there is something to be read again on SIGHUP."""
        return bool(self.engines) or any(name in self._files for name in RENEWED)

    def reread(self) -> "Settings":
        """The settings with the keys and the engines that their files have now. Raises SettingsError, which shows no
        key.
        """
        now = {name: path for name, path in self._files.items() if name in RENEWED}
        same = {name: getattr(self, name) for name in self.model_fields_set - now.keys()}
        return _check(same, now, Given({})).from_files(self._files)

    def from_files(self, files: dict[str, Path]) -> Self:
        """These settings, knowing which of them were read from files."""
        self._files = files
        return self

    @property
    def renewed_seconds(self) -> float:
        """The longest time until a lease is renewed: one renewal may take the store's whole time limit, the next comes
        a while after it, and takes as long again.
        """
        return self.lease_seconds / RENEWALS + 2 * self.store_timeout_seconds

    @property
    def pin_seconds(self) -> float:
        """How long a run pins the turn that it continues: the longest time from its first read to its end."""
        given = self.request_seconds + self.send_seconds + self.shutdown_seconds + self.store_patience_seconds
        return given + 2 * CONFIRM_SECONDS + PREPARING_SECONDS

    @property
    def store_limits(self) -> dict[str, str]:
        """The limits that all who use the store have to have in common, as its record has them."""
        limits = {name: f"{getattr(self, name):.12g}" for name in STORE_LIMITS}
        return limits | {"archive_url": self.archive_kind}


def load_settings(**overrides: object) -> Settings:
    """Read the settings once. An override that is not None wins over the environment, `.env` and the default.

    Raises SettingsError, whose message never holds a secret.
    """
    if overrides.keys() - Settings.model_fields.keys():
        raise TypeError(f"not a setting: {', '.join(sorted(overrides.keys() - Settings.model_fields.keys()))}")
    options = {name: value for name, value in overrides.items() if value is not None}
    try:
        given = Given(options)
        _refuse_unknown(given.variables)
        files = given.files()
    except (EnvFileError, SecretError) as error:
        raise SettingsError(str(error)) from None
    values = {name: value for name in Settings.model_fields if (value := given.value(name)) is not None}
    return _check(values, files, given).from_files(files)


def _check(values: dict[str, object], files: dict[str, Path], given: Given) -> Settings:
    """The settings with these values, and with those in `files`. Raises SettingsError."""
    try:
        return Settings.model_validate(values | read_secrets(files))
    except SecretError as error:
        raise SettingsError(str(error)) from None
    except ValidationError as error:
        raise SettingsError("; ".join(_reasons(error, given))) from None


def variable(name: str) -> str:
    """The environment variable of the setting `name`."""
    return PREFIX + name.upper()


def description(name: str) -> str:
    """The meaning of the setting `name`, on one line: the text below it."""
    return " ".join((Settings.model_fields[name].description or "").split())


def display(settings: Settings) -> dict[str, str | int | float | bool]:
    """Every setting by name, fit to be shown: keys and the password in the Redis URL are masked."""
    shown: dict[str, str | int | float | bool] = {}
    for name in Settings.model_fields:
        value = getattr(settings, name)
        shown[name] = value if isinstance(value, (str, int, float)) else _display(value)
    shown["api_keys"] = ",".join(f"{key.tenant}:{MASK}" for key in settings.api_keys)
    shown["seal_keys"] = ",".join(MASK for _ in settings.seal_keys)
    shown["tenant_limits"] = ",".join(f"{name}={limit}" for name, limit in settings.tenant_limits.items())
    pictures = settings.pictures | (
        {"urls": "+".join(settings.pictures["urls"])} if "urls" in settings.pictures else {}
    )
    shown["pictures"] = ",".join(f"{name}={most}" for name, most in pictures.items())
    for name in ("redis_url", "archive_url"):
        shown[name] = _without_password(getattr(settings, name))
    for name in ("mcp_allow", "search_url", "webhook_url", "traces_url"):
        shown[name] = mask_secrets(str(shown[name]))
    return shown


def _display(value: object) -> str:
    """A value as its variable would be written; a secret is masked."""
    if isinstance(value, SecretStr):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, tuple):
        return ",".join(map(str, cast(tuple[object, ...], value)))
    if isinstance(value, dict):
        shown = cast(dict[str, object], value)
        return json.dumps({name: MASK if _SECRET.search(name) else each for name, each in shown.items()})
    return str(value)


def _without_password(url: str) -> str:
    """`url` with its passwords masked, in the user part and in the query."""
    masked = re.sub(r"(://[^/?#@:]*:).*@", rf"\g<1>{MASK}@", url)
    return re.sub(r"(?i)([?&]\w*password=)[^&]*", rf"\g<1>{MASK}", masked)


def groups() -> dict[str, list[str]]:
    """The names of all settings by heading."""
    begins = {first: heading for heading, first in GROUPS.items()}
    found: dict[str, list[str]] = {heading: [] for heading in GROUPS}
    heading = ""
    for name in Settings.model_fields:
        heading = begins.get(name, heading)
        found[heading].append(name)
    return found


def is_flag(name: str) -> bool:
    """Whether the setting `name` is true or false."""
    return Settings.model_fields[name].annotation is bool


def is_number(name: str) -> bool:
    """Whether the setting `name` is a number."""
    return _schemas()[name].get("type") in ("integer", "number")


def allowed_values(name: str) -> str:
    """The allowed values of the setting `name`, as a table shows them; empty where its description has them."""
    schema = _schemas()[name]
    least, above, most = (schema.get(each) for each in ("minimum", "exclusiveMinimum", "maximum"))
    if schema.get("type") == "boolean":
        return "`true`, `false`"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{word}`" for word in schema.get("enum", [schema.get("const")]))
    if above is not None:
        return f"above {above:,} to {most:,}"
    if least is not None:
        return (
            f"{_number(name, least)} to {_number(name, most)}"
            if most is not None
            else f"{_number(name, least)} or more"
        )
    if "maxLength" in schema:
        return f"up to {schema['maxLength']:,} characters"
    return f"up to {schema['maxItems']:,}" if "maxItems" in schema else ""


@cache
def _schemas() -> dict[str, dict[str, Any]]:
    return Settings.model_json_schema()["properties"]


def _number(name: str, value: float) -> str:
    return with_unit(int(value)) if unit_of(name) == "_bytes" and value >= 1024 else f"{value:,}"


def _refuse_unknown(names: Iterable[str]) -> None:
    """Raise SettingsError for a HARMONIUM_* variable that is no setting: a misspelt limit is no limit."""
    known = {name.upper() for name in Settings.model_fields}
    known |= {file_variable(name).removeprefix(PREFIX) for name in SECRETS}
    known |= {name.removeprefix(PREFIX) for name in CLIENTS}
    for name in sorted(names):
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in known:
            near = difflib.get_close_matches(name.removeprefix(PREFIX), known, n=1)
            meant = f"; did you mean {PREFIX}{near[0]}?" if near else "."
            raise SettingsError(f"{name} is not a setting{meant} `harmonium settings` lists all of them")


def _reasons(error: ValidationError, given: Given) -> Iterable[str]:
    """One phrase for each fault. It begins with the setting, by the name by which it was given."""
    for each in error.errors(include_url=False, include_input=False):
        yield _about_one(each, given) if each["loc"] else _about_several(each, given)


def _about_one(error: ErrorDetails, given: Given) -> str:
    name = str(error["loc"][0])
    place, value = given.place(name), given.value(name)
    if value is not None and not (name in UNSHOWN or "SecretStr" in str(Settings.model_fields[name].annotation)):
        place += f"{' ' if place.startswith('--') else '='}{mask_secrets(str(value))[:MAX_SHOWN_CHARS]}"
    return f"{place}: {_demand(name, error)}"


def _demand(name: str, error: ErrorDetails) -> str:
    """The demand on a setting that was refused, by its type, or by a rule of ours."""
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    kind = {"integer": "a whole number, ", "number": "a number, "}.get(_schemas()[name].get("type", ""), "")
    unit = unit_of(name)
    with_unit = f", or with a unit as in {EXAMPLES[unit]}" if unit else ""
    if not allowed_values(name):
        return re.sub(r"^\w+ should", "should", error["msg"])
    words = re.sub(r", (`[^`]*`)$", r" or \1", allowed_values(name)).replace("`", "")
    return f"should be {kind}{words}{with_unit}"


def _about_several(error: ErrorDetails, given: Given) -> str:
    """A rule between settings, each by the name by which it was given."""
    message = error["msg"].removeprefix("Value error, ")
    for name in Settings.model_fields:
        if given.place(name).startswith("--"):
            message = message.replace(f"{variable(name)}=", f"{given.place(name)} ")
    return message
