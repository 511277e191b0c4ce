"""Real proxies with the blocks of docs/deploy.md, each in front of one service and of an address where nobody is.

What is put into a block are its addresses and its certificate; around it goes what keeps the server in its folder.
Never repair a block here: repair the page.
"""

import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.support.documents import block
from tests.support.needs import program_path
from tests.support.ports import free_port
from tests.support.waiting import wait_until

PAGE = "docs/deploy.md"
NAME = "localhost"
START_SECONDS = 15.0
STOP_SECONDS = 15.0

NEEDS = {"nginx": "nginx-light", "haproxy": "haproxy"}

CADDY = Path(sys.executable).with_name("caddy")
"""From PyPI: Debian's ends a stream after its first events, now and then (docs/deploy.md)."""


@dataclass(frozen=True)
class Proxy:
    """A proxy that runs: its name, its URL, and the file with the authority that its certificate is from."""

    name: str
    url: str
    authority: Path


@dataclass(frozen=True)
class Place:
    """Where a proxy listens and keeps its files, and its certificate."""

    folder: Path
    port: int
    chain: Path
    key: Path
    both: Path


def replaced(text: str, *changes: tuple[str, str]) -> str:
    """The text with each of these put in for what has to be there."""
    for old, new in changes:
        assert old in text, f"the block has no {old!r}"
        text = text.replace(old, new)
    return text


def caddy(text: str, place: Place) -> tuple[str, ...]:
    """Caddy issues its certificate itself, as it would fetch one."""
    own = (
        "admin off",
        "local_certs",
        "skip_install_trust",
        f"http_port {free_port()}",
        f"storage file_system {place.folder}",
    )
    site = replaced(text, ("api.example.com", f"https://{NAME}:{place.port}"))
    file = place.folder / "Caddyfile"
    file.write_text("\n".join(("{", *own, "}", site)))
    return (str(CADDY), "run", "--adapter", "caddyfile", "--config", str(file))


def nginx(text: str, place: Place) -> tuple[str, ...]:
    """The block is what `http` includes."""
    program = program_path("nginx", NEEDS)
    text = replaced(
        text,
        ("listen 443 ssl", f"listen 127.0.0.1:{place.port} ssl"),
        ("/etc/ssl/api.example.com.pem", str(place.chain)),
        ("/etc/ssl/api.example.com.key", str(place.key)),
    )
    parts = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{part}_temp_path {place.folder}/{part};\n" for part in parts if f"{part}_" in _modules())
    own = f"pid {place.folder}/pid;\ndaemon off;\nuser root;\nerror_log stderr;\nevents {{}}\n"
    file = place.folder / "nginx.conf"
    file.write_text(f"{own}http {{\naccess_log off;\n{paths}{text}}}\n")
    return (program, "-e", "stderr", "-p", str(place.folder), "-c", str(file))


def haproxy(text: str, place: Place) -> tuple[str, ...]:
    """The block is the whole file."""
    changes = ("bind :443", f"bind 127.0.0.1:{place.port}"), ("/etc/haproxy/api.example.com.pem", str(place.both))
    file = place.folder / "haproxy.cfg"
    file.write_text(replaced(text, *changes) + "\n")
    return (program_path("haproxy", NEEDS), "-db", "-f", str(file))


COMMANDS: dict[str, Callable[[str, Place], tuple[str, ...]]] = {"caddy": caddy, "nginx": nginx, "haproxy": haproxy}


def _modules() -> str:
    """The temporary folders that this nginx has been built with, as it names them itself."""
    said = subprocess.run(["nginx", "-V"], capture_output=True, text=True, timeout=STOP_SECONDS).stderr
    without = set(re.findall(r"--without-http_(\w+)_module", said))
    return " ".join(f"{part}_" for part in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi") if part not in without)


def _speaks(port: int) -> bool:
    """Whether it has a certificate by now: Caddy listens before it has made one."""
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(("127.0.0.1", port), START_SECONDS) as raw,
            anybody.wrap_socket(raw, server_hostname=NAME),
        ):
            return True
    except OSError:
        return False


@contextmanager
def proxy(name: str, folder: Path, service_port: int) -> Iterator[Proxy]:
    """A proxy that runs with its block, until the end; skips the test where its program is missing."""
    authority = trustme.CA()
    certificate = authority.issue_cert(NAME, "127.0.0.1")
    place = Place(folder, free_port(), folder / "chain.pem", folder / "key.pem", folder / "both.pem")
    place.chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    place.key.write_bytes(certificate.private_key_pem.bytes())
    place.both.write_bytes(certificate.private_key_and_cert_chain_pem.bytes())
    authority.cert_pem.write_to_path(folder / "authority.pem")
    text = replaced(
        block(PAGE, name), ("10.0.0.7:8000", f"127.0.0.1:{free_port()}"), ("10.0.0.8:8000", f"127.0.0.1:{service_port}")
    )
    command = COMMANDS[name](text, place)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env={"HOME": str(folder)})
    try:
        wait_until(lambda: _speaks(place.port) or process.poll() is not None, START_SECONDS, f"{name} does not answer")
        assert process.poll() is None, (folder / "log").read_text()
        own = folder / "pki" / "authorities" / "local" / "root.crt"
        yield Proxy(name, f"https://{NAME}:{place.port}", own if name == "caddy" else folder / "authority.pem")
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
