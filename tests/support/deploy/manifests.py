"""The Kubernetes manifests as tests read them: the plain files, and what kustomize makes of them.

Nothing here needs a cluster. `kubectl` alone is asked, which has kustomize inside; where it is missing, or older than
LEAST_KUBECTL, the tests of what is built are skipped.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
LEAST_KUBECTL = (1, 27)
"""The first whose kustomize knows `labels` as it is used here."""

SECONDS = 30

Manifest = Mapping[str, Any]


def read_all(text: str) -> list[Manifest]:
    """Every document of a YAML text."""
    return [each for each in yaml.safe_load_all(text) if each is not None]


def default(value: str) -> str:
    """A value of compose.yaml where none of its variables is set."""
    return re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value)


def plain_files() -> Iterator[tuple[Path, Manifest]]:
    """Each manifest that stands in a file, and the file; kustomizations and what isn't for the cluster are left out."""
    for path in sorted(FOLDER.rglob("*.yaml")):
        for manifest in read_all(path.read_text()):
            if "kind" in manifest and path.name != "kustomization.yaml":
                yield path, manifest


@cache
def kubectl() -> str:
    """The path of kubectl; skips the test where it is missing or too old."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("no kubectl on the PATH")
    said = subprocess.run([program, "version", "--client", "-o", "json"], capture_output=True, timeout=SECONDS).stdout
    version = json.loads(said)["clientVersion"]
    found = int(version["major"]), int(re.match(r"\d+", version["minor"])[0])  # type: ignore[index]
    if found < LEAST_KUBECTL:
        pytest.skip(f"kubectl {found[0]}.{found[1]} is too old for its kustomize")
    return program


def built(folder: Path) -> list[Manifest]:
    """What `kubectl apply -k` would send."""
    done = subprocess.run([kubectl(), "kustomize", folder], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "it should warn of nothing"
    return read_all(done.stdout)


def with_component(folder: Path, overlay: str, component: str) -> list[Manifest]:
    """What a kustomization of one's own in `folder` makes of an overlay and a component."""
    root = os.path.relpath(FOLDER, folder.resolve())
    text = f"kind: Kustomization\nresources: [{root}/{overlay}]\ncomponents: [{root}/{component}]\n"
    (folder / "kustomization.yaml").write_text(f"apiVersion: kustomize.config.k8s.io/v1beta1\n{text}")
    return built(folder)


def of_kind(manifests: Iterable[Manifest], *kinds: str) -> list[Manifest]:
    return [each for each in manifests if each["kind"] in kinds]


def named(manifests: Iterable[Manifest], kind: str, name: str) -> Manifest:
    """The one of this kind whose name is this, or begins so where kustomize adds a digest."""
    (found,) = (each for each in of_kind(manifests, kind) if re.fullmatch(rf"{name}(-\w+)?", each["metadata"]["name"]))
    return found


def pods(manifests: Iterable[Manifest]) -> list[Manifest]:
    """The templates of all pods: their labels, and what runs in them."""
    return [each["spec"]["template"] for each in of_kind(manifests, "Deployment", "StatefulSet")]


def container(manifests: Iterable[Manifest], kind: str, name: str) -> Any:
    """The one container of a workload."""
    (only,) = named(manifests, kind, name)["spec"]["template"]["spec"]["containers"]
    return only


def environment(manifests: list[Manifest], pod: Manifest, secret: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The variables that a pod's container finds, where the Secret holds `secret`, and its files are in `folder`."""
    found: dict[str, str] = {}
    (asked,) = pod["spec"]["containers"]
    for source in (each for each in asked.get("envFrom", ()) if "configMapRef" in each):
        (config,) = (
            each
            for each in of_kind(manifests, "ConfigMap")
            if each["metadata"]["name"] == source["configMapRef"]["name"]
        )
        found |= config["data"]
    mounted = {mount["name"]: mount["mountPath"] for mount in asked.get("volumeMounts", ())}
    for volume in pod["spec"].get("volumes", ()):
        for item in volume.get("secret", {}).get("items", ()):
            (folder / item["path"]).write_text(secret[item["key"]])
    for each in asked.get("env", ()):
        if "valueFrom" in each:
            asked_for = each["valueFrom"]["secretKeyRef"]
            if asked_for["key"] in secret or not asked_for.get("optional"):
                found[each["name"]] = secret[asked_for["key"]]
        else:
            found[each["name"]] = each["value"].replace(mounted.get("secrets", "no mount"), str(folder))
    return found


def secret_keys(pod: Manifest) -> set[str]:
    """The keys of Secrets that a pod asks for, as variables and as files."""
    (asked,) = pod["spec"]["containers"]
    variables = {each["valueFrom"]["secretKeyRef"]["key"] for each in asked.get("env", ()) if "valueFrom" in each}
    volumes = pod["spec"].get("volumes", ())
    return variables | {item["key"] for volume in volumes for item in volume.get("secret", {}).get("items", ())}
