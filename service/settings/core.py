"""The settings of the service, its store and its archive: every knob with its bounds and its description.

Rules between settings are in settings.py. The environment is looked at here for two things: where data goes by default,
and where several processes count together.
"""

import ipaddress
import json
import os
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator

from service.ssrf import BY_NAME
from store.keys import MAX_SHARDS
from store.redis.address import parse

PREFIX = "HARMONIUM_"
ENV_FILE = ".env"
DEFAULT_TENANT = "default"
MAX_API_KEYS = 10_000
MAX_KEY_CHARS = 512
LEAST_KEY_CHARS = 20
"""Shorter API keys are warned of, and no administrator's key is."""

LEAST_WEIGHT, MOST_WEIGHT = 0.01, 1000
"""The bounds of a tenant's weight."""

MAX_SERVERS = 64
LEAST_CONTEXT_TOKENS = 1024

ENGINE_URLS = {
    "vllm": "http://127.0.0.1:8001",
    "sglang": "http://127.0.0.1:30000",
    "tensorrt": "http://127.0.0.1:8001",
    "llama": "http://127.0.0.1:8080",
    "chat": "http://127.0.0.1:8001",
}
"""Where the servers of an engine are unless ENGINE_URL says otherwise."""

VLLM_MODEL = "openai/gpt-oss-20b"
"""The model that `vllm-local` loads unless LOCAL_MODEL says otherwise."""

UNSAID_CONTEXT = "tensorrt"
"""The engine whose servers don't say how long their context is."""

ENGINE_NAMES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt": "TensorRT-LLM",
    "llama": "llama.cpp",
    "chat": "Chat Completions",
}
"""The names of the engines, as a person writes them."""

LIMITS = (
    *(f"max_{what}_per_1_{window}" for window in ("minute", "month") for what in ("requests", "tokens")),
    "max_parallel_responses",
)
"""The limits that a tenant may have: OpenAI's names of rate limits, and others like them."""

MAX_LIMIT = 1_000_000_000
"""The largest limit: a tenant that should have more needs none."""

KIB = 1024
MIB = 1024 * KIB

SQLITE = "sqlite"
NO_ARCHIVE = "none"
ARCHIVE_KINDS = (SQLITE, "s3", "gs", "az", "postgresql", "postgres")
"""The schemes of an archive's URL."""

BUCKETS = ("s3", "gs", "az")
_BUCKET = re.compile(r"[a-z0-9]+://[A-Za-z0-9._-]+(/[^@?#]*)?\Z")

MASK = "****"
_SECRET_VALUE = re.compile(r"([?&#;][^=&#\s]*(?:key|token|secret|pass|sig|auth|cred)[^=&#\s]*=)[^&#\s]*", re.IGNORECASE)

_TENANT = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_KEY = re.compile(rf"[\x21-\x7e]{{1,{MAX_KEY_CHARS}}}")


class ApiKey(NamedTuple):
    """A key that may be presented, and the tenant whose conversations it opens."""

    tenant: str
    key: SecretStr


def comma_separated(value: object) -> object:
    """The words that a text lists with commas; anything else as it is."""
    return tuple(each.strip() for each in value.split(",") if each.strip()) if isinstance(value, str) else value


def _whole(path: Path) -> Path:
    return path.expanduser().absolute()


def _whole_path(value: str) -> str:
    return str(_whole(Path(value))) if value else ""


def _folder(value: str) -> str:
    """Refuse a folder that isn't there."""
    path = _whole_path(value)
    if path and not Path(path).is_dir():
        raise ValueError(f"should be a folder that exists; {path} is no folder")
    return path


def check_key(value: SecretStr, least: int = 1) -> SecretStr:
    """The key, of at least so many characters where there is one. Raises ValueError."""
    key = value.get_secret_value()
    if key and (len(key) < least or not _KEY.fullmatch(key)):
        raise ValueError(
            f"should be {least} to {MAX_KEY_CHARS} printable ASCII characters, no space; `openssl rand -hex 32` prints "
            "such a key"
        )
    return value


Words = Annotated[tuple[str, ...], BeforeValidator(comma_separated)]
"""A list with commas."""

WholePath = Annotated[str, AfterValidator(_whole_path)]
"""A path in full, whatever the folder in which the process runs later; empty for none."""

Folder = Annotated[str, AfterValidator(_folder)]
"""A folder that exists, by its whole path; empty for none."""

SecretKey = Annotated[SecretStr, AfterValidator(check_key)]
"""A key that is sent as a header; empty for none."""


def _zero_or_context(tokens: int) -> int:
    """Refuse a context in which nothing has room."""
    if 0 < tokens < LEAST_CONTEXT_TOKENS:
        raise ValueError(f"should be 0, or at least {LEAST_CONTEXT_TOKENS}")
    return tokens


def parse_limits(text: str) -> dict[str, int]:
    """Limits as `NAME=NUMBER`, with commas between. Raises ValueError."""
    found = dict[str, int]()
    for each in filter(None, map(str.strip, text.split(","))):
        name, _, number = each.partition("=")
        if name not in LIMITS or name in found or not re.fullmatch(r"[0-9]{1,10}", number) or int(number) > MAX_LIMIT:
            raise ValueError(
                f"should be NAME=NUMBER with commas between, each name once: one of {', '.join(LIMITS)}, and a number "
                f"up to {MAX_LIMIT}"
            )
        found[name] = int(number)
    return found


def parse_api_keys(text: str) -> tuple[ApiKey, ...]:
    """The keys in `text`: `key` or `tenant:key`, comma-separated.

    Raises ValueError, which names the place of the entry that is wrong and never the key.
    """
    keys: list[ApiKey] = []
    seen: set[str] = set()
    for place, entry in enumerate(text.split(","), start=1):
        entry = entry.strip()
        if not entry:
            continue
        tenant, colon, key = entry.partition(":")
        if not colon:
            tenant, key = DEFAULT_TENANT, entry
        if not _TENANT.fullmatch(tenant):
            raise ValueError(f"entry {place}: a tenant's name should be 1 to 64 of the characters A-Z a-z 0-9 _ . -")
        if not _KEY.fullmatch(key):
            raise ValueError(
                f"entry {place}: a key should be 1 to {MAX_KEY_CHARS} printable ASCII characters, no space"
            )
        if key in seen:
            raise ValueError(f"entry {place}: this key is listed twice, so its tenant would be ambiguous")
        seen.add(key)
        keys.append(ApiKey(tenant, SecretStr(key)))
    return tuple(keys)


def parse_weights(entries: Sequence[str]) -> dict[str, float]:
    """The weights of tenants, each listed as `tenant=weight`. Raises ValueError."""
    weights: dict[str, float] = {}
    for entry in entries:
        tenant, _, number = entry.partition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = 0.0
        if not _TENANT.fullmatch(tenant) or not LEAST_WEIGHT <= weight <= MOST_WEIGHT or tenant in weights:
            raise ValueError(
                f"should be tenant=weight, comma-separated, each tenant once and its weight from {LEAST_WEIGHT:g} to "
                f"{MOST_WEIGHT:,}; such as acme=3"
            )
        weights[tenant] = weight
    return weights


def server_url(url: str, key_remedy: str) -> str:
    """An engine's server's URL without the slash at its end, or one by name. `key_remedy` says where a key goes. Raises
    ValueError.
    """
    try:
        parts = urlsplit(url.removeprefix(BY_NAME))
        _ = parts.port
    except ValueError:
        raise ValueError("should be URLs such as http://10.0.0.5:8000, comma-separated") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"should be URLs that begin with http:// or https://, or {BY_NAME}http://, comma-separated")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"should have no user, password or query; {key_remedy}")
    return url.rstrip("/").removesuffix("/v1")


def _parse(parse: Callable[[str], object]) -> BeforeValidator:
    """Text is parsed; anything else is as it is."""
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def _engine_args(value: object) -> object:
    try:
        parsed = json.loads(value or "{}") if isinstance(value, str) else value
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError('should be a JSON object, such as {"max_model_len": 32768} is for vLLM')
    return cast(dict[str, object], parsed)


def _right_weights(entries: tuple[str, ...]) -> tuple[str, ...]:
    parse_weights(entries)
    return entries


def _engine_urls(urls: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(server_url(each, f"a key goes into {PREFIX}ENGINE_API_KEY") for each in urls)


def _right_redis_url(url: str) -> str:
    if url:
        parse(url)
    return url


def _default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "share") / "harmonium"


def mask_secrets(text: str) -> str:
    """A text to be shown, without what may be secret in a URL: all that stands before an @ but its scheme, and the
    values in a query whose names say so. A path of the file system is as it was.
    """
    if text.startswith("/"):
        return text
    before, at, behind = text.rpartition("@")
    scheme, slashes, _ = before.partition("://")
    whole = f"{scheme if slashes else ''}{slashes}{MASK}@{behind}" if at else text
    return _SECRET_VALUE.sub(rf"\g<1>{MASK}", whole)


class SettingsPart(BaseModel):
    """Some of the settings. The text below each is its help and its documentation."""

    model_config = ConfigDict(
        frozen=True,
        hide_input_in_errors=True,
        validate_default=True,
        use_attribute_docstrings=True,
        defer_build=True,  # for all settings together, and not for each part of them
    )


class CoreSettings(SettingsPart):
    """The settings of serving and storing."""

    host: str = "127.0.0.1"
    """Address to listen on. Without API keys it must be loopback."""
    port: int = Field(8000, ge=0, le=65535)
    """TCP port to listen on; 0 takes a free one."""
    workers: int = Field(1, ge=1, le=64)
    """Processes that share the port and the store."""
    api_keys: Annotated[tuple[ApiKey, ...], _parse(parse_api_keys)] = Field((), max_length=MAX_API_KEYS)
    """Keys that clients may present, comma-separated: `key` (tenant `default`) or `tenant:key`. Tenants never see each
    other's conversations."""
    admin_key: Annotated[SecretStr, AfterValidator(partial(check_key, least=LEAST_KEY_CHARS))] = SecretStr("")
    """The key of an administrator, of at least 20 characters. With it there are projects and keys in the store, which
    OpenAI's admin API makes and ends. Without it, and without PROJECTS, only API_KEYS open the service."""
    projects: bool = False
    """Whether there are projects and keys in the store, also without ADMIN_KEY: `harmonium keys create-admin` makes the
    first administrator's."""
    tenant_limits: Annotated[dict[str, int], _parse(parse_limits)] = {}
    """Limits of each tenant that no administrator has given another limit, comma-separated, such as
    max_requests_per_1_minute=60,max_tokens_per_1_month=1000000. docs/tenants.md names all. Empty is no limit."""
    usage_days: int = Field(90, ge=0, le=3_660)
    """For how many days it is known what each project, key and model used in each hour; 0 counts nothing. An hour takes
    some 200 bytes for each project, key and model in it, in each shard, and at most 200 KB."""
    priority_tenants: Words = ()
    """Tenants whose `priority` requests go before other tenants', comma-separated. Where API_KEYS has one tenant, it
    may. A `service_tier` of priority is default for the others."""

    engine: Literal["demo", "vllm", "vllm-local", "sglang", "tensorrt", "llama", "llama-local", "chat"] = "demo"
    """The engine that samples tokens: `demo`, a deterministic stand-in that needs no GPU; `vllm`, vLLM servers;
    `vllm-local`, vLLM in this process; `sglang`, SGLang servers; `tensorrt`, TensorRT-LLM servers; `llama`, llama.cpp
    servers; `llama-local`, llama.cpp beside this process; `chat`, any Chat Completions."""
    model: str = Field("", max_length=256)
    """Id of the model that is served. Empty is the first that the server lists, LOCAL_MODEL for `vllm-local`, its
    file's name for `llama-local`, and `demo` for the demo engine, whose name has to begin so."""
    context_tokens: Annotated[int, AfterValidator(_zero_or_context)] = Field(0, ge=0, le=16_777_216)
    """The most that prompt and output may have together, in tokens: at least 1,024. 0 is what the engine says, 131,072
    for the demo engine. It never raises what a server says, and is needed for `tensorrt`, for a router and for most
    servers of `chat`, which say nothing."""
    engine_url: Annotated[Words, AfterValidator(_engine_urls)] = Field((), max_length=MAX_SERVERS)
    """The servers of `vllm`, `sglang`, `tensorrt`, `llama` or `chat`. Several are comma-separated, and have to serve
    the same model. One that begins with dns+, as dns+http://vllm:8000, is a server at each address that its host has.
    Empty is http://127.0.0.1:8001 for `vllm`, `tensorrt` and `chat`, port 30000 for `sglang`, and 8080 for `llama`."""
    engine_api_key: SecretKey = SecretStr("")
    """The key that the servers ask for. Empty sends none."""
    engines: WholePath = Field("", max_length=4096)
    """File of several engines, each with its model and its servers, of which a request's `model` chooses. It takes the
    place of ENGINE, ENGINE_URL, ENGINE_API_KEY, MODEL, MODEL_ALIASES and CONTEXT_TOKENS. Empty is one engine."""
    chats: Literal["passed-on", "remembered", "refused"] = "passed-on"
    """Treatment of clients that send their whole history: /v1/chat/completions, /v1/messages and their like are passed
    on to the engine's server, of which `demo` and `vllm-local` have none; conversations are recognised by what they
    say, and continued and stored, those two APIs among them; or such paths are refused."""
    local_model: str = Field("", max_length=4096)
    """The model that `vllm-local` or `llama-local` loads. For vLLM it is a name or a folder, and empty is
    openai/gpt-oss-20b; for llama.cpp a GGUF file, or `smol`: SmolLM2-135M."""
    local_args: Annotated[dict[str, Any], BeforeValidator(_engine_args)] = {}
    """Engine arguments of `vllm-local`, as a JSON object with the names of vLLM's AsyncEngineArgs; or options of
    `llama-local`, with the names that xllamacpp's CommonParams has for llama.cpp's, such as n_parallel, n_gpu_layers
    and cpuparams.n_threads."""
    demo_tokens_per_second: float = Field(0, ge=0, le=1_000_000)
    """Pace of the demo engine; 0 is as fast as it can."""

    store: bool = True
    """Whether responses are stored unless a request says otherwise; false forbids storing."""
    redis_url: Annotated[str, AfterValidator(_right_redis_url)] = Field("", repr=False)
    """Redis to keep conversations in: redis://, unix://, redis+sentinel:// or redis+cluster://, with rediss for TLS.
    Empty starts an embedded server that keeps its data in the data folder."""
    key_prefix: str = Field("harmonium", pattern=r"^[A-Za-z0-9_.:-]{1,64}$")
    """The prefix of every Redis key; services that share a Redis need different ones."""
    shards: int = Field(1, ge=1, le=MAX_SHARDS)
    """Parts that conversations are spread over, each on one node of a cluster. It may grow at any time, and must never
    shrink."""
    data_dir: Annotated[Path, AfterValidator(_whole)] = Field(default_factory=_default_data_dir)
    """Folder of the embedded server's data. One harmonium at a time can own it."""
    store_timeout_seconds: float = Field(2.0, gt=0, le=60)
    """The most that one operation of the store may take before it counts as down."""
    store_patience_seconds: float = Field(20.0, ge=0, le=600)
    """For how long an answer that has ended waits to be stored while Redis is away, and its client for its end. A
    failover takes 5 to 30 s."""
    store_replicas: int = Field(0, ge=0, le=100)
    """How many replicas have to have a response before its end is told, and before one that is queued is accepted."""
    store_fsync: bool = False
    """Whether the disk has to have it, too: it takes Valkey or Redis 7.2, and with `appendfsync everysec` up to a
    second."""
    store_cache_bytes: int = Field(64 * MIB, ge=0, le=64 * 1024 * MIB)
    """Memory in which each process keeps turns that it read or wrote, in bytes; 0 keeps none."""

    max_responses: int = Field(1_000_000, ge=0)
    """The most responses kept in a shard; the least recently used of the tenant that has most are evicted for new ones.
    0 is no limit."""
    max_trees: int = Field(0, ge=0)
    """The most conversations kept in a shard, each with all its forks; the least recently used of tenants with more
    than their share are evicted for new ones. 0 is no limit."""
    max_bytes: int = Field(4096 * MIB, ge=0)
    """The most memory that Redis may hold for a shard's conversations, in bytes; the least recently used responses of
    the tenant that has most are evicted for new ones. 0 is no limit."""
    change_limits: bool = False
    """Whether this process makes its limits those of the store, where the store was used with others. Without it, it
    doesn't start then. It is about MAX_RESPONSES, MAX_TREES, MAX_BYTES, IDLE_DAYS, CONVERSATION_IDLE_DAYS,
    MAX_LOG_BYTES and STREAM_RETENTION_SECONDS, by which each process deletes for all. An embedded server's follow its
    own."""
    idle_days: float = Field(30, ge=0, le=36_500)
    """A chain of responses that nobody used for so many days is deleted; with an archive it only leaves memory. 0 keeps
    it."""
    conversation_idle_days: float = Field(0, ge=0, le=36_500)
    """A conversation with an id, and the responses in it, are deleted once nobody used them for so many days, no fewer
    than IDLE_DAYS. 0 keeps them, until they are deleted or evicted."""

    max_body_bytes: int = Field(8 * MIB, ge=KIB, le=1024 * MIB)
    """The largest request body, in bytes. All bodies of one process, and the stored responses that clients read, have
    six times as many together; more are refused with 503."""
    max_chain_bytes: int = Field(32 * MIB, ge=KIB, le=1024 * MIB)
    """A conversation whose stored messages have this many bytes can't be continued."""
    max_output_tokens: int = Field(32_768, ge=16)
    """Output tokens, reasoning included, when a request names no limit of its own."""
    max_concurrent_requests: int = Field(512, ge=1, le=100_000)
    """Requests that one process works on at once. More requests for a response wait for QUEUE_SECONDS; what asks no
    model, such as a GET or a cancel, has an eighth more. 256 wait at most; the rest is refused with 503."""
    queue_seconds: float = Field(10, ge=0, le=600)
    """How long a request for a response waits until the process has room for it. Then it is refused with 503; 0 refuses
    it at once."""
    tenant_weights: Annotated[Words, AfterValidator(_right_weights)] = ()
    """Weights of tenants, or of projects by their ids, whose requests wait: `tenant=3` is served three times as many
    tokens as another one. Comma-separated, each from 0.01 to 1,000; without, it is 1. A weight that an administrator
    gave the project goes before."""
    request_seconds: float = Field(600, gt=0, le=86_400)
    """The most that one response may take."""
    keepalive_seconds: float = Field(15, gt=0, le=3600)
    """Seconds without an event before a `keepalive`, or a comment, keeps a stream's connection alive. Codex takes a
    stream for dead after 300, most proxies after 60."""
    send_seconds: float = Field(60, gt=0, le=3600)
    """How long a client may take to send the body of a request, and may leave a stream unread before its connection is
    closed."""
    shutdown_seconds: int = Field(30, ge=1, le=3600)
    """How long open streams may continue after a stop was requested."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""
    log_format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object a line."""


class ArchiveSettings(SettingsPart):
    """The settings of the archive."""

    archive_url: str = Field("", max_length=4096, repr=False)
    """Where turns are kept that leave memory: `sqlite` in the data folder, `sqlite:///FOLDER`, `s3://BUCKET/PREFIX`,
    `gs://`, `az://` or `postgresql://`. `none` deletes what leaves memory. Empty is `sqlite` with the embedded server,
    and `none` with REDIS_URL."""
    archive_after_seconds: float = Field(60, ge=0, le=86_400)
    """How long after a conversation changed it is archived. Until then it is in memory alone."""
    archive_days: float = Field(0, ge=0, le=36_500)
    """An archived conversation that nobody continued for so many days is deleted for good. 0 keeps it."""
    archive_when_down: Literal["refuse", "evict"] = "refuse"
    """Treatment of a new turn where memory is full of turns that an archive which is away still lacks: it is refused
    with 503, or takes the place of the turn used least, which is then lost."""

    @field_validator("archive_url")
    @classmethod
    def _check_archive_url(cls, value: str) -> str:
        """Check the URL as far as that needs no backend. No error shows it, as it may have a password in it."""
        if value in ("", NO_ARCHIVE, SQLITE):
            return value
        try:
            scheme = urlsplit(value).scheme
        except ValueError:
            scheme = ""
        if "://" not in value or scheme not in ARCHIVE_KINDS:
            raise ValueError("should be none, sqlite, or begin with sqlite:///, s3://, gs://, az:// or postgresql://")
        if scheme in BUCKETS and not _BUCKET.match(value):
            raise ValueError(f"should be {scheme}://BUCKET/PREFIX; keys are in the provider's variables")
        return value

    @property
    def has_archive(self) -> bool:
        """Whether there is an archive: with the embedded server, once its address is known."""
        return self.archive_url not in ("", NO_ARCHIVE)

    @property
    def archive_kind(self) -> str:
        """The kind of the archive, or none."""
        return self.archive_url.partition(":")[0] if self.has_archive else NO_ARCHIVE


def environment(names: Sequence[str]) -> dict[str, str]:
    """Those variables of the environment with these names that are there."""
    return {name: os.environ[name] for name in names if name in os.environ}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`: 127.0.0.0/8, ::1 or the name localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""prometheus_client's own variable, which it looks up whenever it makes a value: it can be told in no other way where
several processes count together. Processes inherit it, so it tells those behind one port of each other too."""


def metrics_folder() -> Path | None:
    """Where this process counts together with others, or None if it counts alone."""
    folder = os.environ.get(METRICS_FOLDER)
    return Path(folder) if folder else None


@contextmanager
def counting_together() -> Generator[None]:
    """Have all processes that are started within the block count together, in a fresh folder."""
    with TemporaryDirectory(prefix="harmonium-metrics-") as folder:
        os.environ[METRICS_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[METRICS_FOLDER]
