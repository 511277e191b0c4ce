"""deploy/prometheus and deploy/grafana: alerts that fire when they should, and a board whose every expression has
series in a real Prometheus that scrapes a real service.
"""

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import yaml

from tests.support import ROOT
from tests.support.deploy.prometheus import (
    FOLDER,
    NEEDS,
    Prometheus,
    config,
    expressions,
    prometheus,
    promtool,
    rules,
)
from tests.support.documents import read
from tests.support.needs import program_path
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, ServiceProcess
from tests.support.waiting import wait_until

METRICS_KEY = "sk-metrics-0123456789"
AT_ONCE = 6
"""Requests at a time, of which the service takes fewer."""

KEPT = 20
"""Responses that the service keeps, so that it evicts."""

SECONDS = 20.0
GRACE = "75m"
"""After which every alert has had its time."""

GROWS, STAYS = "0+60x80", "1x80"
SLOW = "0x80"
ONE_OF_TEN = {'status="200"': "0+540x80", 'status="500"': GROWS}


def labelled(name: str, *labels: str, values: str = GROWS) -> dict[str, str]:
    """A series for each set of labels, with the same values."""
    return {f"{name}{{{each}}}": values for each in labels}


def late(name: str, labels: str = "") -> dict[str, str]:
    """A histogram of which all that was observed is above its last bound but one."""
    return labelled(f"{name}_bucket", f'{labels}le="0.1"', values=SLOW) | labelled(
        f"{name}_bucket", f'{labels}le="100"', f'{labels}le="+Inf"'
    )


def limit(setting: str, value: int) -> dict[str, str]:
    name = "harmonium_limit_bytes" if setting.endswith("bytes") else "harmonium_limit"
    return labelled(name, f'setting="{setting}"', values=f"{value}x80")


BAD: Mapping[str, Mapping[str, str]] = {
    "HarmoniumDown": {'up{job="harmonium"}': "0x80"},
    "HarmoniumFails": {f"harmonium_requests_total{{{labels}}}": each for labels, each in ONE_OF_TEN.items()},
    "HarmoniumRefuses": labelled("harmonium_admission_refused_total", 'limit="queue"'),
    "HarmoniumSlowFirstToken": late("harmonium_time_to_first_token_seconds", 'mode="stream",'),
    "HarmoniumLoopLags": late("harmonium_loop_lag_seconds"),
    "HarmoniumStoreAway": {"harmonium_store_up": "0x80"},
    "HarmoniumStoreSlow": late("harmonium_store_operation_duration_seconds"),
    "HarmoniumStoreFull": {'harmonium_store_bytes{shard="0"}': "95x80"} | limit("max_bytes", 100),
    "HarmoniumForgets": labelled("harmonium_turns_removed_total", 'reason="bytes"'),
    "HarmoniumExpiryDoubted": labelled("harmonium_expiry_doubted_total", 'reason="clock"'),
    "HarmoniumEventLogFull": {'harmonium_event_log_bytes{shard="0"}': "95x80"} | limit("max_event_log_bytes", 100),
    "HarmoniumEngineDown": labelled("harmonium_engine_up", 'server="a"', values="0x80"),
    "HarmoniumEngineFails": labelled("harmonium_engine_errors_total", 'kind="failed"'),
    "HarmoniumQueueStands": {'harmonium_queue_oldest_seconds{shard="0"}': "0+60x80"},
    "HarmoniumQueueFull": labelled("harmonium_queue_jobs", 'shard="0",priority="default"', values="45x80")
    | labelled("harmonium_queue_jobs", 'shard="0",priority="flex"', values="45x80")
    | limit("max_queued_responses", 100),
    "HarmoniumWorkersDie": {"harmonium_jobs_rescued_total": GROWS},
    "HarmoniumGivesUp": {"harmonium_jobs_attempts_exhausted_total": GROWS},
    "HarmoniumCancelsSlowly": late("harmonium_job_cancel_duration_seconds"),
    "HarmoniumWebhooksLost": labelled("harmonium_webhook_attempts_total", 'outcome="given_up"'),
    "HarmoniumMixedReleases": labelled(
        "harmonium_build_info", 'version="1",commit="a"', 'version="2",commit="b"', values=STAYS
    ),
}
"""What each alert is to be raised for."""

GOOD: Mapping[str, str] = {
    'up{job="harmonium"}': STAYS,
    'harmonium_requests_total{status="200"}': GROWS,
    'harmonium_admission_refused_total{limit="queue"}': SLOW,
    "harmonium_store_up": STAYS,
    'harmonium_store_bytes{shard="0"}': "10x80",
    'harmonium_engine_up{server="a",instance="1"}': STAYS,
    'harmonium_engine_up{server="a",instance="2"}': "0x80",
    'harmonium_turns_removed_total{reason="idle"}': GROWS,
    'harmonium_queue_jobs{shard="0",priority="default"}': "5x80",
    'harmonium_build_info{version="1",commit="a"}': STAYS,
    **limit("max_bytes", 100),
    **limit("max_queued_responses", 100),
    **labelled("harmonium_job_cancel_duration_seconds_bucket", 'le="0.1"', 'le="+Inf"'),
    **labelled("harmonium_loop_lag_seconds_bucket", 'le="0.1"', 'le="+Inf"'),
}
"""What none is raised for."""


def raised(folder: Path, cases: Mapping[str, tuple[Mapping[str, str], bool]]) -> None:
    """Have promtool say that alerts of a name are raised after a while for some series, or that none is."""
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(count by (alertname) (ALERTS{{alertname=~"{alert}",alertstate="firing"}}))',
                    "eval_time": GRACE,
                    "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                }
            ],
        }
        for alert, (series, fires) in cases.items()
    ]
    path = folder / "test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(FOLDER / "alerts.yml")], "tests": tests}))
    promtool("test", "rules", path)


def test_prometheus_finds_its_files_right(tmp_path: Path) -> None:
    promtool("check", "rules", FOLDER / "alerts.yml")
    promtool("check", "config", config(tmp_path, ["localhost:8000"], METRICS_KEY))
    composed = ROOT / "deploy/compose/prometheus.yml"
    (rules,) = yaml.safe_load(composed.read_text())["rule_files"]
    assert (composed.parent / rules).resolve() == FOLDER / "alerts.yml"


def test_every_alert_says_what_is_wrong_and_where_to_look() -> None:
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "remedy"}, rule["alert"]
        assert f"`{rule['alert']}`" in read("docs/metrics.md")
    assert {rule["alert"] for rule in rules()} == set(BAD)


def test_each_alert_is_raised_for_what_is_bad_and_none_where_all_is_well(tmp_path: Path) -> None:
    raised(tmp_path, {alert: (series, True) for alert, series in BAD.items()})
    raised(tmp_path, {"Harmonium.*": (GOOD, False)})


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped a service while all of it was in use."""
    program_path("prometheus", NEEDS)
    service = ServiceProcess(
        tmp_path_factory.mktemp("service"),
        api_keys=f"acme:{ACME_KEY},globex:{GLOBEX_KEY}",
        metrics_key=METRICS_KEY,
        demo_tokens_per_second=400,
        max_concurrent_requests=AT_ONCE // 2,
        admission_wait_seconds=0.2,
        max_responses=KEPT,
        archive_url="none",
    )
    try:
        with prometheus(tmp_path_factory.mktemp("prometheus"), [f"127.0.0.1:{service.port}"], METRICS_KEY) as found:
            scrapes = 'count_over_time(up{job="harmonium"}[10m])'
            for _ in range(3):
                use(service)
                (before,) = found.ask(scrapes) or [0.0]
                wait_until(
                    lambda: found.ask(scrapes) or [0.0], SECONDS, wanted=lambda now, least=before + 2: now[0] >= least
                )
            yield found
    finally:
        service.stop()


def use(service: ServiceProcess) -> None:
    """A round of all that is counted: answers, streams, more requests than it takes, the background, a cancel."""
    http = service.http(ACME_KEY)

    def ask(**body: object) -> httpx.Response:
        return http.post("/v1/responses", json={"model": MODEL, "input": "Count to 20.", **body})

    for _ in range(KEPT // 2):
        assert ask(max_output_tokens=16).status_code == 200
    with ThreadPoolExecutor(AT_ONCE) as many:
        together = many.map(lambda _: ask(stream=True, input="Count to 100."), range(AT_ONCE))
        statuses = {each.status_code for each in together}
    assert statuses == {200, 503}
    long, short = ask(background=True, input="Count to 900."), ask(background=True)
    assert http.post(f"/v1/responses/{long.json()['id']}/cancel").status_code == 200
    wait_until(lambda: http.get(f"/v1/responses/{short.json()['id']}").json()["status"] == "completed", SECONDS)


def test_every_expression_has_series_and_every_alert_can_be_judged(watched: Prometheus) -> None:
    asked = dict(expressions())
    assert len(asked) > 70

    def without() -> set[str]:
        return {place for place, expression in asked.items() if not any(map(math.isfinite, watched.ask(expression)))}

    wait_until(without, SECONDS, wanted=lambda found: not found)  # a scrape that comes late leaves gauges without
    judged = wait_until(watched.rules, SECONDS, wanted=lambda found: all(each["health"] == "ok" for each in found))
    assert len(judged) == len(rules())
