"""The settings of the core, by groups: every knob with its bounds and its description, and the rules between them.

No group here names a feature. The environment is looked at here for two things: where data goes by default, and where
several processes count together.
"""

import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from service.api.content import PictureBounds
from service.settings.engines import EngineSettings
from service.settings.group import (
    KEY,
    MAX_KEY_CHARS,
    Folder,
    RenewedSecret,
    SettingsGroup,
    Words,
    check_key,
    comma_separated,
    each_is,
    key_of,
    mask,
    parsed_by,
    shown_as,
    whole,
)
from service.settings.sources import PREFIX, InFile
from service.settings.units import DAY_SECONDS, KIB, MIB, size
from service.settings.urls import MASK, without_password
from store.keys import MAX_SHARDS
from store.redis.address import parse
from store.redis.confirm import CONFIRM_SECONDS
from store.turn import MOST_PICTURES

DEFAULT_TENANT = "default"
MAX_API_KEYS = 10_000
LEAST_KEY_CHARS = 20
"""Shorter API keys are warned of, and no administrator's key is."""

LEAST_WEIGHT, MOST_WEIGHT = 0.01, 1000
MAX_SEAL_KEYS = 16
MAX_CORS_ORIGINS = 64
MAX_HOSTS = 64
MAX_PRIVATE_NETWORKS = 64
MOST_OF_PICTURES = {"bytes": 32 << 20, "pixels": 1 << 30, "request": MOST_PICTURES, "conversation": 1000}

LEAST_SEAL_KEY_CHARS = 32
"""Twice what an attacker could ever guess, where it is `openssl rand`'s."""

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
    *("max_event_log_bytes", "stream_retention_seconds"),
)
"""The limits by which one process deletes what all others keep: they have to be the same for all."""

RENEWALS = 4
"""How often a lease is renewed before it would run out."""

LEASE_TIMEOUTS = 2 * RENEWALS / (RENEWALS - 1)
"""The times of the store's time limit that a lease is longer than, as follows from CoreSettings.renewed_seconds."""

_TENANT = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]+\](:\d{1,5})?")
_DOMAIN = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){0,40}")
HOSTS = "HOST+HOST, as example.com, or *"
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?")


class ApiKey(NamedTuple):
    """A key that may be presented, and the tenant whose conversations it opens."""

    tenant: str
    key: SecretStr


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
        if not KEY.fullmatch(key):
            raise ValueError(
                f"entry {place}: a key should be 1 to {MAX_KEY_CHARS} printable ASCII characters, no space"
            )
        if key in seen:
            raise ValueError(f"entry {place}: this key is listed twice, so its tenant would be ambiguous")
        seen.add(key)
        keys.append(ApiKey(tenant, SecretStr(key)))
    if text.strip() and not keys:  # as of variables that are empty: nobody wants a service open to all by them
        raise ValueError("there is no key between its commas")
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


def _right_weights(entries: tuple[str, ...]) -> tuple[str, ...]:
    parse_weights(entries)
    return entries


def _right_redis_url(url: str) -> str:
    if url:
        parse(url)
    return url


def _no_empty_folder(path: str) -> str:
    if not path.strip():  # it would be the folder in which the process runs
        raise ValueError("should be a folder; name one, or leave it out")
    return path


def _default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "share") / "harmonium"


def _is_network(text: str) -> bool:
    try:
        return bool(ip_network(text))
    except ValueError:
        return False


def parse_pictures(given: str) -> dict[str, int | tuple[str, ...]]:
    """Bounds of pictures as `NAME=NUMBER`, comma-separated; `urls` has hosts, with + in between. Raises ValueError."""
    found = dict[str, int | tuple[str, ...]]()
    for each in filter(None, map(str.strip, given.split(","))):
        name, _, number = each.partition("=")
        if name == "urls" and name not in found:
            found[name] = hosts = tuple(number.lower().split("+"))
            if len(hosts) > MAX_HOSTS or not all(each == "*" or _DOMAIN.fullmatch(each) for each in hosts):
                raise ValueError(f"urls should be {HOSTS}, up to {MAX_HOSTS} of them")
            continue
        most = MOST_OF_PICTURES.get(name, 0)
        count = size(number) if name == "bytes" else int(number) if re.fullmatch(r"[0-9]{1,10}", number) else 0
        if name in found or not 1 <= count <= most:
            bounds = ", ".join(f"{name} up to {most}" for name, most in MOST_OF_PICTURES.items())
            raise ValueError(f"should be NAME=NUMBER with commas between, each name once: {bounds}; or urls={HOSTS}")
        found[name] = count
    return found


def _show_pictures(bounds: dict[str, int | tuple[str, ...]]) -> str:
    return ",".join(f"{name}={each if isinstance(each, int) else '+'.join(each)}" for name, each in bounds.items())


def _right_seal_keys(keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
    for place, key in enumerate(keys, start=1):
        try:
            check_key(key, LEAST_SEAL_KEY_CHARS)
        except ValueError as error:
            raise ValueError(f"entry {place}: {error}") from None
        if key in keys[: place - 1]:
            raise ValueError(f"entry {place}: this key is listed twice")
    return keys


class ServingSettings(SettingsGroup):
    """Where the service listens, and who enters."""

    heading = "Serving"

    host: str = "127.0.0.1"
    """Address to listen on. Without API keys it must be loopback."""
    port: int = Field(8000, ge=0, le=65535)
    """TCP port to listen on; 0 takes a free one."""
    workers: int = Field(1, ge=1, le=64)
    """Processes that share the port and the store."""
    api_keys: Annotated[
        tuple[ApiKey, ...],
        parsed_by(parse_api_keys),
        shown_as(lambda keys: ",".join(f"{each.tenant}:{MASK}" for each in keys)),
        InFile(renewed=True, several=True),
    ] = Field((), max_length=MAX_API_KEYS, repr=False)
    """Keys of clients, comma-separated: `key` (tenant `default`) or `tenant:key`. Tenants never see each other's
    conversations."""
    admin_key: Annotated[RenewedSecret, key_of(LEAST_KEY_CHARS)] = SecretStr("")
    """An administrator's key, at least 20 characters. It turns on projects and their keys, by OpenAI's admin API."""
    projects: bool = False
    """Whether the store has projects and keys without ADMIN_KEY: `harmonium keys create-admin` creates the first
    administrator's key."""
    priority_tenants: Words = ()
    """Tenants whose `priority` requests go before other tenants', comma-separated. A single tenant in API_KEYS is
    allowed. For other tenants `priority` counts as default."""

    @property
    def tenants(self) -> set[str]:
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
    def has_projects(self) -> bool:
        """Whether there are projects and keys in the store."""
        return self.projects or bool(self.admin_key.get_secret_value())

    @property
    def has_keys(self) -> bool:
        """Whether a request needs a key."""
        return bool(self.api_keys) or self.has_projects


class StoreSettings(SettingsGroup):
    """Where conversations are."""

    heading = "Store"

    store: bool = True
    """Whether responses are stored unless a request says otherwise; false forbids storing them, and conversations."""
    redis_url: Annotated[str, AfterValidator(_right_redis_url), shown_as(without_password), InFile()] = Field(
        "", repr=False
    )
    """Redis for the conversations: redis://, unix://, redis+sentinel:// or redis+cluster://, rediss with TLS. Empty
    starts an embedded server."""
    redis_prefix: str = Field("harmonium", pattern=r"^[A-Za-z0-9_.:-]{1,64}$")
    """The prefix of every Redis key; services that share a Redis need different ones."""
    shards: int = Field(1, ge=1, le=MAX_SHARDS)
    """Parts of the store, each on one node of a cluster. The number can grow at any time, and must never shrink."""
    data_dir: Annotated[Path, AfterValidator(whole), parsed_by(_no_empty_folder)] = Field(
        default_factory=_default_data_dir
    )
    """Folder of the embedded server's data. One harmonium at a time can own it."""
    store_timeout_seconds: float = Field(2.0, gt=0, le=60)
    """The longest time of one operation; then the store counts as down."""
    store_patience_seconds: float = Field(20.0, ge=0, le=600)
    """How long an ended answer, and its client, wait for an unavailable Redis. A failover takes 5 to 30 s."""
    store_replicas: int = Field(0, ge=0, le=100)
    """How many replicas must have a response before its end is reported, and a queued one before it is accepted."""
    store_fsync: bool = False
    """Whether the response must also be on disk: requires Valkey or Redis 7.2, and takes up to a second with
    `appendfsync everysec`."""
    store_cache_bytes: int = Field(64 * MIB, ge=0, le=64 * 1024 * MIB)
    """Each process's cache of turns, in bytes; 0 is none."""


class RetentionSettings(SettingsGroup):
    """How much is kept, and for how long."""

    heading = "What is kept"

    max_responses: int = Field(1_000_000, ge=0)
    """The most responses of a shard; a new one evicts the least recently used of the largest tenant. 0 is no limit."""
    max_trees: int = Field(0, ge=0)
    """The most conversations of a shard, each with all its forks; a new one evicts the least recently used of tenants
    above their share. 0 is no limit."""
    max_bytes: int = Field(4096 * MIB, ge=0)
    """The most memory of Redis for a shard's conversations, in bytes; new responses evict the least recently used of
    the largest tenant. 0 is no limit."""
    change_limits: bool = False
    """Whether this process sets its limits (MAX_*, IDLE_DAYS and the like) for the store. Otherwise a process whose
    limits differ from the store's doesn't start. An embedded server always allows it."""
    idle_days: float = Field(30, ge=0, le=36_500)
    """An unused chain of responses is deleted after so many days; with an archive it only leaves memory. 0 keeps it."""
    conversation_idle_days: float = Field(0, ge=0, le=36_500)
    """An unused conversation with an id, and its responses, are deleted after so many days, no fewer than IDLE_DAYS. 0
    keeps them until they are deleted or evicted."""
    usage_days: int = Field(90, ge=0, le=3_660)
    """For how many days usage is stored, by project, key, model and hour; 0 counts nothing. Each combination takes some
    200 bytes an hour and shard, at most 200 KB."""


class RequestSettings(SettingsGroup):
    """Bounds of requests and connections."""

    heading = "Requests and connections"

    max_body_bytes: int = Field(8 * MIB, ge=KIB, le=1024 * MIB)
    """The largest request body, in bytes. All bodies of a process together, with the stored responses that clients
    read, take at most six times as much; above that, requests are a 503."""
    max_chain_bytes: int = Field(32 * MIB, ge=KIB, le=1024 * MIB)
    """A conversation with so many bytes of stored messages can't be continued."""
    default_output_tokens: int = Field(32_768, ge=16)
    """The limit of output tokens, reasoning included, for requests that name none; they can name more. A cap is an
    engine's `max_output_tokens`, in the file ENGINES."""
    max_concurrent_requests: int = Field(512, ge=1, le=100_000)
    """Requests at once in one process. More requests for a response wait ADMISSION_WAIT_SECONDS, at most 256; the
    rest are a 503. Requests without a model, such as a GET or a cancel, have an eighth more."""
    admission_wait_seconds: float = Field(10, ge=0, le=600)
    """How long a request for a response waits for room in the process before it is a 503; 0 doesn't wait."""
    tenant_weights: Annotated[Words, AfterValidator(_right_weights)] = ()
    """Weights of waiting tenants, or projects by id, comma-separated, each 0.01 to 1,000: `tenant=3` gets three times
    the tokens of others. An administrator's weight overrides it."""
    request_seconds: float = Field(600, gt=0, le=86_400)
    """The longest time of one response."""
    keepalive_seconds: float = Field(15, gt=0, le=3600)
    """Seconds without an event before a stream gets a `keepalive` or a comment. Codex closes a silent stream after 300,
    most proxies after 60."""
    send_seconds: float = Field(60, gt=0, le=3600)
    """How long a client can take to send a body, or leave a stream unread, before its connection is closed."""
    shutdown_seconds: int = Field(30, ge=1, le=3600)
    """How long open streams can continue after a stop."""


class LogSettings(SettingsGroup):
    """The log."""

    heading = "Log"

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""
    log_format: Literal["text", "json"] = "text"
    """Lines for people, or one JSON object a line."""


class OfferSettings(SettingsGroup):
    """The offers of the API beside sampling."""

    heading = "What the API offers"

    seal_keys: Annotated[
        tuple[SecretStr, ...],
        AfterValidator(_right_seal_keys),
        parsed_by(lambda text: tuple(map(SecretStr, comma_separated(text)))),
        shown_as(lambda keys: ",".join(map(mask, keys))),
        InFile(several=True),
    ] = Field((), max_length=MAX_SEAL_KEYS, repr=False)
    """Keys for sealed content of clients, comma-separated, each 32 characters or more; the first seals, all open.
    Empty makes one in Redis."""
    prompts_dir: Folder = ""
    """Folder of the stored prompts for `prompt` of requests. Empty is none."""
    unsupported: Literal["leave-out", "refuse"] = "leave-out"
    """Hosted tools that aren't enabled, images for a model that doesn't see, unreadable parts of a history:
    `leave-out` drops them, and names them in a header and the log; `refuse` makes them a 400."""
    pictures: Annotated[dict[str, Any], parsed_by(parse_pictures), shown_as(_show_pictures)] = {}
    """Bounds of pictures: bytes=5MiB and pixels=33554432 of one, request=20, conversation=100 (the defaults),
    comma-separated; and urls=example.com+example.org, hosts whose pictures are fetched (`*`: any)."""
    tool_seconds: float = Field(60, gt=0, le=3600)
    """The longest time of one call of an MCP server's tool, or of a Python cell before it is interrupted."""
    allowed_private_hosts: Annotated[
        Words,
        each_is(_HOST.fullmatch, "host; write wiki.internal or wiki.internal:8080"),
        AfterValidator(lambda hosts: tuple(map(str.lower, hosts))),
    ] = Field((), max_length=MAX_HOSTS)
    """Hosts at private addresses whose pages web_search opens, and whose pictures are fetched, comma-separated, such as
    wiki.internal:8080. All other hosts need a public address and port 80 or 443."""
    private_networks: Annotated[Words, each_is(_is_network, "network; write 2001:db8::/32 or 198.51.100.0/24")] = Field(
        (), max_length=MAX_PRIVATE_NETWORKS
    )
    """Public networks that count as private, comma-separated, such as 2001:db8::/32: requests reach no page, picture or
    MCP server there, nor at this machine's addresses."""
    cors_origins: Annotated[
        Words,
        each_is(
            lambda text: text == "*" or _ORIGIN.fullmatch(text),
            "origin; write https://host or http://host:port, without a path",
        ),
    ] = Field((), max_length=MAX_CORS_ORIGINS)
    """Origins of web pages that can call the API, comma-separated, such as https://chat.example.com. Needs API keys.
    `*` is all."""


class BackgroundSettings(SettingsGroup):
    """Background responses: their workers, their queue and their events."""

    heading = "Background responses"

    embedded_worker: bool = True
    """Whether `serve` also works on background responses itself."""
    worker_concurrency: int = Field(32, ge=1, le=10_000)
    """Background responses that one process works on at once."""
    worker_port: int = Field(0, ge=0, le=65535)
    """TCP port on HOST where `harmonium worker` answers /health, /ready and /metrics; 0 opens none."""
    lease_seconds: float = Field(10, ge=0.5, le=3600)
    """How long a worker can be silent before another one takes over its background responses."""
    max_attempts: int = Field(3, ge=1, le=100)
    """How many workers in a row may die or fail on a background response without progress before it fails."""
    max_run_seconds: float = Field(3600, gt=0, le=7 * 86_400)
    """The longest time that all workers together spend on a background response, without the queue."""
    max_queued_responses: int = Field(10_000, ge=1)
    """The most waiting background responses of a shard; more are a 429. Half can have a completion_window. Tenants with
    less than a sixteenth of it can use an eighth more."""
    background_without_store: bool = False
    """Whether a background response can have `store: false`. Such a response is deleted with its events, and can't be
    continued."""
    stream_retention_seconds: float = Field(3600, ge=0, le=30 * 86_400)
    """How long after its end a background response's events can be streamed again."""
    max_event_log_bytes: int = Field(1024 * MIB, ge=MIB)
    """The most memory of Redis for the events of a shard's background responses, in bytes. New events replace the
    earliest ended; waiting responses can have half, those with a completion_window a quarter."""


class MetricsSettings(SettingsGroup):
    """Metrics."""

    heading = "Metrics"

    metrics_key: Annotated[RenewedSecret, AfterValidator(check_key)] = SecretStr("")
    """The key for /metrics, as a bearer token. Without one, and with API keys, /metrics is refused."""


class CoreSettings(
    MetricsSettings,
    BackgroundSettings,
    OfferSettings,
    LogSettings,
    RequestSettings,
    RetentionSettings,
    StoreSettings,
    EngineSettings,
    ServingSettings,
):
    """The settings that every response may need."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        """Check the settings against each other. Raises ValueError for the first rule that is broken."""
        self._check_doors()
        self._check_store()
        self._check_tenants()
        return self

    def _check_doors(self) -> None:
        if not self.has_keys and not is_loopback(self.host):
            raise ValueError(
                f"{PREFIX}HOST={self.host} can be reached from other machines, but no API key is set, "
                f"so anybody could read every conversation; set {PREFIX}API_KEYS, or listen on 127.0.0.1"
            )
        if self.cors_origins and not self.has_keys:
            raise ValueError(
                f"{PREFIX}CORS_ORIGINS lets web pages call the service, but no API key is set, so each page could read "
                f"every conversation on its visitor's machine; set {PREFIX}API_KEYS"
            )
        if self.engine.endswith("-local") and self.workers > 1:
            raise ValueError(
                f"{PREFIX}WORKERS={self.workers} would load the model {self.workers} times with "
                f"{PREFIX}ENGINE={self.engine}; set it to 1, or run a server"
            )

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

    def _check_tenants(self) -> None:
        for name, named in (("PRIORITY_TENANTS", self.priority_tenants), ("TENANT_WEIGHTS", self.weights)):
            unknown = set(named) - self.tenants
            if unknown and not self.has_projects:
                raise ValueError(
                    f"{PREFIX}{name} names {', '.join(sorted(unknown))}, without a key in {PREFIX}API_KEYS; add one, "
                    "or leave the tenant out"
                )
        if self.admin_key == self.metrics_key != SecretStr(""):
            raise ValueError(f"{PREFIX}ADMIN_KEY is also {PREFIX}METRICS_KEY, which scrapers have; make another one")
        if any(each.key == self.admin_key for each in self.api_keys):
            raise ValueError(
                f"{PREFIX}ADMIN_KEY is one of {PREFIX}API_KEYS, too, but an administrator's key only administers; make "
                "another one"
            )

    @property
    def max_connections(self) -> int:
        """The most connections of one process, idle ones and open streams included; more are hung up on."""
        requests = self.max_concurrent_requests + MAX_QUEUED_REQUESTS
        return requests + MAX_FOLLOWERS + MAX_SOCKETS + SPARE_CONNECTIONS

    @property
    def weights(self) -> dict[str, float]:
        return parse_weights(self.tenant_weights)

    @property
    def refuses(self) -> bool:
        """Whether images, and tools that OpenAI runs, are refused instead of left out."""
        return self.unsupported == "refuse"

    @property
    def picture_bounds(self) -> PictureBounds | None:
        """The bounds of pictures; None where images are refused."""
        return None if self.refuses else PictureBounds(**self.pictures)

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
        return {name: f"{getattr(self, name):.12g}" for name in STORE_LIMITS}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`: 127.0.0.0/8, ::1 or the name localhost."""
    try:
        return ip_address(host).is_loopback
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
