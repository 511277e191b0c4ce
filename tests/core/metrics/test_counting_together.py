"""Several processes behind one port: whoever is asked tells the sum of all, also of those that died."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from prometheus_client import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from service.settings.core import METRICS_FOLDER
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.service.scraped import scraped
from tests.support.waiting import wait_until

Start = Callable[..., ServiceProcess]
WORKERS, REQUESTS = 2, 60
SHORT = {"model": MODEL, "input": "hi", "max_output_tokens": 16}
LONG = {"model": MODEL, "input": "Count to 900.", "stream": True}


def create(service: ServiceProcess) -> dict[str, int]:
    """The usage of a short response, over a connection of its own, so that any process may take it."""
    return httpx.post(f"{service.url}/v1/responses", json=SHORT, timeout=30, trust_env=False, verify=False).json()[
        "usage"
    ]


class Pair:
    """A service of two processes, and what it was asked."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service = service
        self.usages: list[dict[str, int]] = []

    @property
    def folder(self) -> Path:
        parent = self.service.process.pid
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
            found = [line.partition("=")[2] for line in environment if line.startswith(METRICS_FOLDER)]
            if found:
                return Path(found[0])
        raise AssertionError("no process of it counts in a folder")

    def pids(self) -> list[int]:
        return [int(path.read_text()) for path in sorted(self.folder.glob("*.pid"))]

    def shares(self) -> list[float]:
        files = sorted(self.folder.glob("counter_*.db"))
        places = [MultiProcessCollector.merge([str(file)]) for file in files]
        return [sum(samples(families, "harmonium_requests_total", endpoint="/v1/responses")) for families in places]

    def at_work(self) -> int:
        """The place of the one that has a request under way."""
        places = [MultiProcessCollector.merge([str(file)]) for file in sorted(self.folder.glob("gauge_livesum_*.db"))]
        under_way = [sum(samples(families, "harmonium_requests_in_progress")) for families in places]
        assert sorted(under_way) == [0, 1]
        return under_way.index(1)

    def ask(self) -> None:
        """Send requests until each of them has answered some, at least REQUESTS."""
        least = len(self.usages) + REQUESTS
        with ThreadPoolExecutor(8) as threads:  # at once, or the same process would take them all
            while len(self.usages) < least or len(shares := self.shares()) < WORKERS or not all(shares):
                assert len(self.usages) < 100 * REQUESTS, "one of them answers nothing"
                self.usages += threads.map(create, [self.service] * 8)
        wait_until(lambda: sum(self.shares()) == len(self.usages))

    def check(self) -> None:
        """That every scrape, whoever answers it, tells the sum of all."""
        for _ in range(10):
            with httpx.Client(base_url=self.service.url, timeout=30, trust_env=False, verify=False) as http:
                found = scraped(http)
            assert found.counted("harmonium_responses_total") == {("plain", "demo", "incomplete"): len(self.usages)}
            assert found.value("harmonium_time_to_first_token_seconds_count", mode="plain") == len(self.usages)
            assert found.value("harmonium_output_tokens_total") == sum(each["output_tokens"] for each in self.usages)
            assert found.labels("process_resident_memory_bytes", "process") == {"0", "1"}


def samples(families: Iterable[Metric], name: str, **labels: str) -> Iterator[float]:
    for family in families:
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                yield sample.value


def test_whoever_is_asked_tells_the_sum_of_all_also_of_those_that_died_and_no_file_is_left(start: Start) -> None:
    pair = Pair(start(workers=WORKERS, demo_tokens_per_second=200))
    pair.ask()
    pair.check()
    before, folder = pair.pids(), pair.folder
    assert folder.stat().st_mode & 0o777 == 0o700
    with pair.service.http().stream("POST", "/v1/responses", json=LONG) as stream:
        pieces = stream.iter_bytes()  # held, as a generator that is let go of closes the stream
        next(pieces)
        os.kill(before[pair.at_work()], signal.SIGKILL)
        wait_until(lambda: len(set(pair.pids()) - set(before)) == 1, 60, passing=(OSError, ValueError))
    assert len(list(folder.glob("counter_*.db"))) == 2
    assert scraped(pair.service.http()).value("harmonium_requests_in_progress") == 0
    pair.ask()
    pair.check()
    pair.service.stop()
    assert not folder.exists()
