"""The service as NVIDIA's AIPerf measures it, beside another gateway: chained sessions, streamed.

    scripts/bench aiperf [--check] [--sessions N] [--turns N] [--agents N]

AIPerf (`scripts/setup aiperf`; .venv-aiperf) loads each gateway of `scripts/bench peers` in turn, before an engine that
says 64 tokens, one every 5 ms. Each session is continued by `previous_response_id`: sessions of made-up text, then
sessions as agents hold them, with some 50,000 tokens first and the results of tools behind. AIPerf's quantiles stand
beside those of the service's own /metrics. The network isn't asked for anything.
"""

import argparse
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from bench._harness import HOST
from bench._peers.servers import OURS, Peer, running

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / ".venv-aiperf/bin/aiperf"
MOST_SECONDS = 1_800.0

VOCABULARY = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
"""What AIPerf's own tokenizer would fetch; bpe-openai carries the same file."""

CONCURRENCY = 4
TURN_TOKENS = 200
"""The tokens that a made-up turn sends."""

ANSWER_TOKENS = 200
"""More than an answer has: AIPerf doesn't continue a response that was cut off."""

TOKEN_MS = 5.0
MOST_CONTEXT = 100_000
"""The tokens at which AIPerf's sessions of agents end: the engine takes 131,072."""

FIRST_TARGET = 1.0
"""The most until the first token at p50, of smg's."""

SHOWN = {
    "time_to_first_token": ("harmonium_time_to_first_token_seconds", {"mode": "stream"}),
    "request_latency": ("harmonium_request_duration_seconds", {"endpoint": "/v1/responses", "method": "POST"}),
}
"""AIPerf's names, and those of the service's histograms."""

Buckets = Mapping[str, Mapping[float, float]]
"""How many requests took at most as many seconds, by AIPerf's name."""


class Load(NamedTuple):
    """A load that AIPerf sends: its name, the number of its requests, and AIPerf's options for it."""

    name: str
    requests: int
    options: Sequence[str]


def made_up(sessions: int, turns: int) -> Load:
    """Sessions of made-up text, of as many turns each."""
    shape = ["--num-conversations", sessions, "--conversation-turn-mean", turns, "--isl", TURN_TOKENS]
    return Load("synthetic", sessions * turns, [*map(str, shape), "--osl", str(ANSWER_TOKENS)])


def agentic(sessions: int, env: Mapping[str, str], folder: Path) -> Load:
    """Sessions as agents hold them, which AIPerf makes. Their pauses are left out. Raises CalledProcessError."""
    shape = ["--num-sessions", str(sessions), "--max-isl", str(MOST_CONTEXT), "--output", str(folder)]
    _run("synthesize", "agentic-code", *shape, env=env)
    (lines,) = folder.glob("*/dataset.jsonl")
    turns = [json.loads(line) for line in lines.read_text().splitlines()]
    lines.write_text("".join(json.dumps(turn | {"delay": 0, "output_length": ANSWER_TOKENS}) + "\n" for turn in turns))
    kind = ["--custom-dataset-type", "mooncake_trace", "--no-fixed-schedule", "--num-conversations", str(sessions)]
    return Load("agentic", len(turns), ["--input-file", str(lines), *kind])


def measure(load: Load, peer: Peer, env: Mapping[str, str], folder: Path) -> Mapping[str, Any]:
    """AIPerf's figures of its load on a gateway. Raises CalledProcessError."""
    where = ["-m", peer.model, "--url", f"http://{HOST}:{peer.port}", "--output-artifact-dir", str(folder)]
    kind = ["--endpoint-type", "responses", "--streaming", "--concurrency", str(CONCURRENCY)]
    chained = ["--extra-inputs", '{"store": true}', "--use-server-token-count"]
    _run("profile", *where, *kind, *chained, "--tokenizer", "builtin", "--ui", "none", *load.options, env=env)
    found: dict[str, Any] = json.loads((folder / "profile_export_aiperf.json").read_text())
    return found


def _run(*arguments: str, env: Mapping[str, str]) -> None:
    done = subprocess.run(
        [PROGRAM, *arguments], env=env, timeout=MOST_SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        sys.stderr.write(done.stdout.decode()[-4000:])
        done.check_returncode()


def buckets(port: int) -> Buckets:
    """The service's own histograms at this moment."""
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=30) as answer:
        families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
    return {
        name: {
            float(sample.labels["le"]): sample.value
            for sample in families[own].samples
            if sample.name.endswith("_bucket") and labels.items() <= sample.labels.items()
        }
        for name, (own, labels) in SHOWN.items()
    }


def quantile(share: float, before: Mapping[float, float], after: Mapping[float, float]) -> float:
    """Milliseconds, between the bounds of its bucket in proportion, as Prometheus' histogram_quantile has it."""
    counts = {bound: count - before.get(bound, 0.0) for bound, count in sorted(after.items())}
    wanted, below, lower = share * max(counts.values()), 0.0, 0.0
    for bound, count in counts.items():
        if count >= wanted and count > below:
            return 1000 * (lower + (bound - lower) * (wanted - below) / (count - below))
        below, lower = count, bound
    return 0.0


def vocabulary(folder: Path) -> None:
    """Put the vocabulary of AIPerf's tokenizer where it looks before it asks the network."""
    package = find_spec("bpe_openai")
    assert package is not None
    assert package.origin is not None
    content = gzip.decompress((Path(package.origin).parent / "data/o200k_base.tiktoken.gz").read_bytes())
    (folder / hashlib.sha1(VOCABULARY.encode(), usedforsecurity=False).hexdigest()).write_bytes(content)


class Measured(NamedTuple):
    """A gateway under a load: AIPerf's figures, the seconds of CPU, and both quantiles by its own histograms."""

    load: Load
    peer: Peer
    found: Mapping[str, Any]
    cpu: float
    own: Mapping[str, tuple[float, float]]

    @property
    def whole(self) -> bool:
        """Whether all requests were answered, none with an error."""
        return self._made == self.load.requests and not self.found["request_error_rate"]["avg"]

    @property
    def first_token(self) -> float:
        """Milliseconds at p50."""
        return float(self.found["time_to_first_token"]["p50"])

    @property
    def _made(self) -> int:
        return round(self.found["request_count"]["avg"])

    def tell(self) -> None:
        """Print it."""
        found, failed = self.found, self.found["request_error_rate"]["avg"]
        print(
            f"{self.load.name}, {self.peer.name}: {self._made} of {self.load.requests} answered, errors {failed:.1f} %"
        )
        for name in SHOWN:
            told = f"  {name}: p50 {found[name]['p50']:.1f} ms, p99 {found[name]['p99']:.1f} ms"
            if name in self.own:
                told += "; by /metrics {:.1f} and {:.1f} ms".format(*self.own[name])
            print(told)
        rate, cpu = found["request_throughput"]["avg"], 1000 * self.cpu / self.load.requests
        print(f"  {rate:.1f} requests a second; a request costs {cpu:.1f} ms of CPU", end="")
        print(f", and sends {found['http_req_data_sent']['p50']:.1f} KB at p50")


def measured(load: Load, peer: Peer, env: Mapping[str, str], folder: Path) -> Measured:
    """Measure a gateway under a load. Raises CalledProcessError."""
    peer.pace(TOKEN_MS)
    before, spent = buckets(peer.port) if peer.name == OURS else {}, peer.cpu_seconds()
    found = measure(load, peer, env, folder / f"{load.name}-{peer.name}")
    cpu = peer.cpu_seconds() - spent
    after = buckets(peer.port) if before else {}
    own = {name: (quantile(0.5, before[name], now), quantile(0.99, before[name], now)) for name, now in after.items()}
    return Measured(load, peer, found, cpu, own)


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="the service as AIPerf measures it")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--sessions", type=int, default=50, help="how many sessions of made-up text")
    parser.add_argument("--turns", type=int, default=6, help="how many turns each of them has")
    parser.add_argument("--agents", type=int, default=4, help="how many sessions of agents")
    options = parser.parse_args()
    subprocess.run([ROOT / "scripts/setup", "aiperf"], check=True)
    with tempfile.TemporaryDirectory() as kept, running() as peers:
        folder = Path(kept)
        vocabulary(folder)
        env = {**os.environ, "TIKTOKEN_CACHE_DIR": kept, "HOME": kept}
        loads = (made_up(options.sessions, options.turns), agentic(options.agents, env, folder / "agents"))
        results = [measured(load, peer, env, folder) for load in loads for peer in peers]
    for each in results:
        each.tell()
    met = all(each.whole for each in results if each.peer.name == OURS)
    print(f"aiperf: all requests answered, none with an error: {'yes' if met else 'no'} (target yes)")
    for ours, theirs in zip(results[::2], results[1::2], strict=True):
        ratio = ours.first_token / theirs.first_token
        print(f"aiperf: first token at p50, {ours.load.name}, of smg's: {ratio:.2f} (target <= {FIRST_TARGET:g})")
        met = met and ratio <= FIRST_TARGET
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
