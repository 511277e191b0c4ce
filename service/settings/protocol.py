"""The settings of what the protocol offers beside sampling: seals, stored prompts, tools, and the sandboxes in which
Python that a model wrote runs.
"""

import re
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator

from service.settings.core import (
    MIB,
    Folder,
    SecretKey,
    SettingsPart,
    WholePath,
    Words,
    check_key,
    comma_separated,
    environment,
)
from service.settings.mcp import BadServers, OperatorServer, is_url, read_servers
from service.settings.sources import size
from store.turn import MOST_PICTURES

MAX_SEAL_KEYS = 16
MAX_MODEL_ALIASES = 64
MAX_CORS_ORIGINS = 64
MAX_MCP_ALLOW = 64
MAX_SEARCH_HOSTS = 64
MAX_PRIVATE_NETWORKS = 64
MOST_OF_PICTURES = {"bytes": 32 << 20, "pixels": 1 << 30, "request": MOST_PICTURES, "conversation": 1000}
"""The largest bounds of pictures."""


MAX_SERVERS_BYTES = 1 << 20
"""The largest file of MCP servers."""

INHERITED = ("PATH", "HOME", "LANG")
"""The variables of the service's own environment, which holds secrets, that MCP servers which are programs get."""

LOCAL = "local"
UNIX = "unix://"
LEAST_SANDBOX_KEY_CHARS = 16

LEAST_SEAL_KEY_CHARS = 32
"""Twice what an attacker could ever guess, where it is `openssl rand`'s."""

_MODEL = re.compile(r"[A-Za-z0-9._:/-]{1,256}")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]+\](:\d{1,5})?")
_DOMAIN = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){0,40}")
HOSTS = "HOST+HOST, as example.com, or *"
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?")


def _is_network(text: str) -> bool:
    try:
        return bool(ip_network(text))
    except ValueError:
        return False


WORDS: dict[str, tuple[Callable[[str], object], str]] = {
    "mcp_allow": (
        lambda text: text == "*" or is_url(text),
        "beginning of a URL; write https://host or https://host/path",
    ),
    "search_hosts": (_HOST.fullmatch, "host; write wiki.internal or wiki.internal:8080"),
    "private_networks": (_is_network, "network; write 2001:db8::/32 or 198.51.100.0/24"),
    "model_aliases": (_MODEL.fullmatch, "name of a model: 1 to 256 of A-Z a-z 0-9 . _ : / -"),
    "cors_origins": (
        lambda text: text == "*" or _ORIGIN.fullmatch(text),
        "origin; write https://host or http://host:port, without a path",
    ),
}
"""The lists whose words are checked: how, and what a wrong word isn't, with what to write."""

PACKAGES = {"mcp_servers": ("mcp", "mcp"), "mcp_allow": ("mcp", "mcp"), "search": ("lxml", "search")}
"""The settings that need a package, each with the extra that brings it."""


def parse_pictures(given: object) -> object:
    """Bounds of pictures as `NAME=NUMBER`, with commas between; bytes may have a unit, and `urls` has hosts, with + in
    between. Raises ValueError.
    """
    if not isinstance(given, str):
        return given
    found = dict[str, int | tuple[str, ...]]()
    for each in filter(None, map(str.strip, given.split(","))):
        name, _, number = each.partition("=")
        if name == "urls" and name not in found:
            found[name] = hosts = tuple(number.lower().split("+"))
            if len(hosts) > MAX_SEARCH_HOSTS or not all(each == "*" or _DOMAIN.fullmatch(each) for each in hosts):
                raise ValueError(f"urls should be {HOSTS}, up to {MAX_SEARCH_HOSTS} of them")
            continue
        most = MOST_OF_PICTURES.get(name, 0)
        count = size(number) if name == "bytes" else int(number) if re.fullmatch(r"[0-9]{1,10}", number) else 0
        if name in found or not 1 <= count <= most:
            bounds = ", ".join(f"{name} up to {most}" for name, most in MOST_OF_PICTURES.items())
            raise ValueError(f"should be NAME=NUMBER with commas between, each name once: {bounds}; or urls={HOSTS}")
        found[name] = count
    return found


class ProtocolSettings(SettingsPart):
    """The other settings of the protocol."""

    seal_keys: tuple[SecretStr, ...] = Field((), max_length=MAX_SEAL_KEYS)
    """Keys for what clients keep sealed: encrypted reasoning and compacted conversations. Comma-separated, each of 32
    characters or more; the first seals, all open. Empty makes one in Redis."""
    prompts_dir: Folder = ""
    """Folder of the stored prompts that a request may name by `prompt`. Empty has none."""
    unsupported: Literal["leave-out", "refuse"] = "leave-out"
    """Treatment of what a model can't be shown: tools that others run, such as web_search, images for a model that
    doesn't see, and what can't be read of a history. `leave-out` names it in a header and in the log, and has a line
    in the place of an image or a file; `refuse`, a 400."""
    pictures: Annotated[dict[str, Any], BeforeValidator(parse_pictures)] = {}
    """Bounds of pictures, comma-separated, such as bytes=10MiB,pixels=50000000,request=50,conversation=200: the most
    bytes and pixels of a picture, and the most pictures of a request and of a prompt. One that is left out is 5 MiB,
    33,554,432, 20 or 100. And urls=example.com+example.org: from these hosts, and those below them, pictures at http
    URLs are fetched, where web_search could open a page; `*` is any, and without it none is."""
    mcp_servers: WholePath = ""
    """File of the MCP servers whose tools requests may use by their `server_label`. Empty has none."""
    mcp_allow: Words = Field((), max_length=MAX_MCP_ALLOW)
    """MCP servers that requests may name by a `server_url`: what it has to begin with, comma-separated, such as
    https://mcp.example.com. `*` is any at a public address. Empty is none."""
    tool_seconds: float = Field(60, gt=0, le=3600)
    """How long one call of a tool may take: of an MCP server, or a cell of Python before it is interrupted."""
    search: Literal["none", "searxng", "brave", "tavily", "exa", "folder"] = "none"
    """The source of web_search: SearXNG at SEARCH_URL; Brave, Tavily or Exa with SEARCH_KEY; or the documents of
    SEARCH_FOLDER. With `none`, web_search is left out."""
    search_url: str = Field("", max_length=2048)
    """Where SearXNG is. Of Brave, Tavily and Exa, another address than their own; of documents, that at which people
    find them."""
    search_key: SecretKey = SecretStr("")
    """The key for Brave, Tavily or Exa."""
    search_folder: Folder = ""
    """Folder of HTML, Markdown and text files that `folder` searches."""
    search_hosts: Words = Field((), max_length=MAX_SEARCH_HOSTS)
    """Hosts whose pages web_search may open at private addresses, and PICTURES' pictures, comma-separated, such as
    wiki.internal or wiki.internal:8080. All others have to have public ones, at port 80 or 443."""
    private_networks: Words = Field((), max_length=MAX_PRIVATE_NETWORKS)
    """Networks with public addresses that count as private, comma-separated, such as 2001:db8::/32: no page of
    web_search, no picture and no MCP server that a request names may be there. Nor may one be at this machine's own
    addresses."""
    model_aliases: Words = Field((), max_length=MAX_MODEL_ALIASES)
    """Other names by which clients may ask for the model, comma-separated, such as gpt-4o. A gpt-oss model has
    openai/<id>, its name at Hugging Face, besides."""
    cors_origins: Words = Field((), max_length=MAX_CORS_ORIGINS)
    """Web pages that may call the API, by their origins, comma-separated, such as https://chat.example.com. Needs API
    keys. `*` is all of them."""

    @field_validator(*PACKAGES)
    @classmethod
    def _check_package(cls, value: str | tuple[str, ...], info: ValidationInfo) -> str | tuple[str, ...]:
        package, extra = PACKAGES[info.field_name or ""]
        if value and value != "none" and find_spec(package) is None:
            raise ValueError(
                f"needs the package {package}, which is not installed; pip install 'harmonium[{extra}]' does that"
            )
        return value

    @field_validator(*WORDS)
    @classmethod
    def _check_words(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        is_right, wrong = WORDS[info.field_name or ""]
        for place, word in enumerate(value, start=1):
            if not is_right(word):
                raise ValueError(f"entry {place} is no {wrong}")
        return tuple(map(str.lower, value)) if info.field_name == "search_hosts" else value

    @field_validator("mcp_servers")
    @classmethod
    def _check_mcp_servers(cls, value: str) -> str:
        if value:
            servers_in(Path(value))
        return value

    @field_validator("search_url")
    @classmethod
    def _check_search_url(cls, value: str) -> str:
        if value and not is_url(value):
            raise ValueError("should be an http:// or https:// URL")
        return value

    @field_validator("seal_keys", mode="before")
    @classmethod
    def _parse_seal_keys(cls, value: object) -> object:
        words = comma_separated(value)
        return tuple(map(SecretStr, cast(tuple[str, ...], words))) if isinstance(value, str) else value

    @field_validator("seal_keys")
    @classmethod
    def _check_seal_keys(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for place, key in enumerate(value, start=1):
            try:
                check_key(key, LEAST_SEAL_KEY_CHARS)
            except ValueError as error:
                raise ValueError(f"entry {place}: {error}") from None
            if key in value[: place - 1]:
                raise ValueError(f"entry {place}: this key is listed twice")
        return value


def servers_in(path: Path) -> dict[str, OperatorServer]:
    """The MCP servers of a file; programs with what they have of the environment, too. Raises ValueError."""
    try:
        if path.stat().st_size > MAX_SERVERS_BYTES:
            raise ValueError(f"{path} has more than {MAX_SERVERS_BYTES} bytes")
        servers = read_servers(path.read_text())
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from error
    except (UnicodeDecodeError, BadServers) as error:
        raise ValueError(f"{path}: {error}") from error
    own = environment(INHERITED)
    return {label: server.among(own) for label, server in servers.items()}


class SandboxSettings(SettingsPart):
    """The settings of sessions of Python."""

    sandbox: str = Field("", max_length=2048)
    """The sandbox for Python that a model writes: `local`, processes of this machine; or where a `harmonium sandbox`
    listens, as unix:///path or http://host:port. Empty has none."""
    sandbox_key: Annotated[SecretStr, AfterValidator(partial(check_key, least=LEAST_SANDBOX_KEY_CHARS))] = SecretStr("")
    """The key that `harmonium sandbox` asks for. It needs one of 16 characters or more, unless it listens on a Unix
    socket."""
    sandbox_listen: str = Field("unix:///run/harmonium/sandbox.sock", max_length=2048)
    """Where `harmonium sandbox` listens: unix:///path or http://address:port."""
    sandbox_sessions: int = Field(32, ge=1, le=512)
    """Sessions that one sandbox has at once. For one more an idle one gives its place up; while all run code, more are
    refused."""
    sandbox_tenant_sessions: int = Field(8, ge=1, le=512)
    """How many of them one tenant may have, in the same way."""
    sandbox_memory_bytes: int = Field(1024 * MIB, ge=64 * MIB, le=1024 * 1024 * MIB)
    """The memory of a session, beside what all of them share, in bytes."""
    sandbox_disk_bytes: int = Field(256 * MIB, ge=MIB, le=1024 * 1024 * MIB)
    """The most bytes that the files of a session have together."""

    @field_validator("sandbox")
    @classmethod
    def _check_sandbox(cls, value: str) -> str:
        if value not in ("", LOCAL) and not is_place(value):
            raise ValueError("should be local, unix:///path or http://host:port")
        return value

    @field_validator("sandbox_listen")
    @classmethod
    def _check_sandbox_listen(cls, value: str) -> str:
        if not is_place(value) or value.startswith("https:"):
            raise ValueError("should be unix:///path or http://address:port")
        return value


def is_place(text: str) -> bool:
    """Whether a sandbox can listen there: a path of a Unix socket, or a host with a port."""
    if text.startswith(UNIX):
        return text.startswith(f"{UNIX}/") and "\0" not in text
    try:
        parts = urlsplit(text)
        found = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not None
    except ValueError:
        return False
    return found and not (parts.username or parts.password or parts.query or parts.fragment or parts.path.strip("/"))
