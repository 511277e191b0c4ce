"""The settings of what the protocol offers beside sampling: seals, stored prompts, and what the model can't see."""

import re
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.settings.core import Folder, SecretKey, Words, check_key, comma_separated, environment
from service.settings.mcp import BadServers, OperatorServer, is_url, read_servers

MAX_SEAL_KEYS = 16
MAX_MODEL_ALIASES = 64
MAX_CORS_ORIGINS = 64
MAX_MCP_ALLOW = 64
MAX_SEARCH_HOSTS = 64
MAX_PRIVATE_NETWORKS = 64
MAX_SERVERS_BYTES = 1 << 20
"""The largest file of MCP servers."""

INHERITED = ("PATH", "HOME", "LANG")
"""The variables of the service's own environment, which holds secrets, that MCP servers which are programs get."""

LEAST_SEAL_KEY_CHARS = 32
"""Twice what an attacker could ever guess, where it is `openssl rand`'s."""

_MODEL = re.compile(r"[A-Za-z0-9._:/-]{1,256}")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-fA-F:.]+\](:[0-9]{1,5})?")


class ProtocolSettings(BaseSettings):
    """The other settings of the protocol. The text below each setting is its help and its documentation."""

    model_config = SettingsConfigDict(defer_build=True)

    seal_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field((), max_length=MAX_SEAL_KEYS)
    """Keys for what clients keep sealed: encrypted reasoning and compacted conversations. Comma-separated, each of 32
    characters or more; the first seals, all open. Empty makes one in Redis."""
    prompts_dir: Folder = ""
    """Folder of the stored prompts that a request may name by `prompt`. Empty has none."""
    unsupported: Literal["leave-out", "refuse"] = "leave-out"
    """Treatment of images in the input, which the model can't read, and of tools that OpenAI runs, such as web_search:
    `leave-out` has a text in the place of an image, and names the tools in a header and in the log; `refuse`, a 400."""
    mcp_servers: str = ""
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
    """Hosts whose pages web_search may open at private addresses, comma-separated, such as wiki.internal or
    wiki.internal:8080. All others have to have public ones, at port 80 or 443."""
    private_networks: Words = Field((), max_length=MAX_PRIVATE_NETWORKS)
    """Networks with public addresses that count as private, comma-separated, such as 2001:db8::/32: no page of
    web_search and no MCP server that a request names may be there. Nor may one be at this machine's own addresses."""
    model_aliases: Words = Field((), max_length=MAX_MODEL_ALIASES)
    """Other names by which clients may ask for the model, comma-separated, such as gpt-4o. A gpt-oss model has
    openai/<id>, its name at Hugging Face, besides."""
    cors_origins: Words = Field((), max_length=MAX_CORS_ORIGINS)
    """Web pages that may call the API, by their origins, comma-separated, such as https://chat.example.com. Needs API
    keys. `*` is all of them."""

    @field_validator("mcp_servers")
    @classmethod
    def _check_mcp_servers(cls, value: str) -> str:
        path = Path(value).expanduser().absolute()
        if value:
            _check_mcp_client()
            servers_in(path)
        return str(path) if value else ""

    @field_validator("mcp_allow")
    @classmethod
    def _check_mcp_allow(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value:
            _check_mcp_client()
        for prefix in value:
            if prefix != "*" and not is_url(prefix):
                raise ValueError(f"{prefix[:100]!r} is no beginning of a URL; write https://host or https://host/path")
        return value

    @field_validator("search")
    @classmethod
    def _check_reader(cls, value: str) -> str:
        if value != "none" and find_spec("lxml") is None:
            raise ValueError(
                "needs the package lxml, which is not installed; pip install 'harmonium[search]' does that"
            )
        return value

    @field_validator("search_url")
    @classmethod
    def _check_search_url(cls, value: str) -> str:
        if value and not is_url(value):
            raise ValueError("should be an http:// or https:// URL")
        return value

    @field_validator("search_hosts")
    @classmethod
    def _check_search_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:.]+\](:\d{1,5})?", host):
                raise ValueError(f"{host[:100]!r} is no host; write wiki.internal or wiki.internal:8080")
        return tuple(host.lower() for host in value)

    @field_validator("private_networks")
    @classmethod
    def _check_private_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            try:
                ip_network(network)
            except ValueError as error:
                raise ValueError(f"{network[:100]!r} is no network; write 2001:db8::/32 or 198.51.100.0/24") from error
        return value

    @field_validator("model_aliases")
    @classmethod
    def _check_model_aliases(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if not _MODEL.fullmatch(name):
                raise ValueError(f"{name[:60]!r} is no name of a model: 1 to 256 of A-Z a-z 0-9 . _ : / -")
        return value

    @field_validator("cors_origins")
    @classmethod
    def _check_cors_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin[:100]!r} is no origin; write https://host or http://host:port, without a path"
                )
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


def _check_mcp_client() -> None:
    """Raises ValueError where the client of MCP servers is not installed."""
    if find_spec("mcp") is None:
        raise ValueError("needs the package mcp, which is not installed; pip install 'harmonium[mcp]' does that")
