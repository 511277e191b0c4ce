"""A real Prometheus with the files of deploy/prometheus, which scrapes services of the tests.

What is put into them are addresses, the key's file and shorter times. Never change an expression here.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import yaml

from tests.support import ROOT
from tests.support.documents import DOCUMENTS, blocks
from tests.support.needs import program_path
from tests.support.ports import free_port
from tests.support.waiting import wait_until

FOLDER = ROOT / "deploy" / "prometheus"
BOARD = ROOT / "deploy" / "grafana" / "harmonium.json"
ADAPTER = ROOT / "deploy" / "kubernetes" / "autoscaling" / "adapter.yaml"
NEEDS = {"prometheus": "prometheus", "promtool": "prometheus"}
SCRAPED_EVERY = "250ms"
SECONDS = 20.0
COMPARISON = re.compile(r" (?:==|>=|<=|>|<) \d+(?:\.\d+)?")


def promtool(*arguments: str | Path) -> str:
    """What promtool says of something that it finds right."""
    done = subprocess.run(
        [program_path("promtool", NEEDS), *arguments], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules() -> list[Mapping[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return cast(list[Mapping[str, Any]], group["rules"])


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression that somebody is given, with where it is from: alerts without what they compare with."""
    for rule in rules():
        yield rule["alert"], COMPARISON.sub("", rule["expr"])
    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield f"{panel['title']} {target['refId']}", target["expr"].replace("$__rate_interval", "1m")
    adapter = yaml.safe_load(ADAPTER.read_text())["rules"]
    for rule in (*adapter["custom"], *adapter["external"]):
        filled = rule["metricsQuery"].replace("<<.Series>>", rule["seriesQuery"].partition("{")[0])
        filled = filled.replace("<<.LabelMatchers>>", 'job="harmonium"').replace("<<.GroupBy>>", "instance")
        yield f"adapter: {rule['name']['as']}", filled
    for document in DOCUMENTS:
        for place, (label, text) in enumerate(blocks(document.read_text())):
            if label == "promql":
                yield f"{document.name} {place}", text


def config(folder: Path, targets: list[str], key: str) -> Path:
    """deploy/prometheus/prometheus.yml with these targets, this key and short times, in a folder with the alerts."""
    shutil.copy(FOLDER / "alerts.yml", folder)
    (folder / "key").write_text(key)
    found = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    found["global"] = {"scrape_interval": SCRAPED_EVERY, "scrape_timeout": SCRAPED_EVERY, "evaluation_interval": "1s"}
    (job,) = found["scrape_configs"]
    job["authorization"]["credentials_file"] = str(folder / "key")
    job["static_configs"][0]["targets"] = targets
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(found))
    return path


class Prometheus:
    """A server that runs."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=SECONDS, trust_env=False)

    def ready(self) -> bool:
        return self._http.get("/-/ready").status_code == 200

    def ask(self, expression: str) -> list[float]:
        """The values of all series that an expression has now."""
        answer = self._http.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", (expression, answer)
        return [float(each["value"][1]) for each in answer["data"]["result"]]

    def rules(self) -> list[Mapping[str, Any]]:
        groups = self._http.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def close(self) -> None:
        self._http.close()


@contextmanager
def prometheus(folder: Path, targets: list[str], key: str) -> Iterator[Prometheus]:
    """A server that scrapes these targets, until the end."""
    port = free_port()
    command = (
        *(program_path("prometheus", NEEDS), f"--config.file={config(folder, targets, key)}"),
        *(f"--storage.tsdb.path={folder / 'series'}", f"--web.listen-address=127.0.0.1:{port}"),
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    found = Prometheus(f"http://127.0.0.1:{port}")
    try:
        wait_until(found.ready, SECONDS, "Prometheus does not start", passing=httpx.TransportError)
        yield found
    finally:
        found.close()
        process.terminate()
        process.wait(SECONDS)
