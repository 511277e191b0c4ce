"""The service as NVIDIA's AIPerf measures it, beside other gateways: chained sessions, streamed.

    scripts/bench aiperf [--check] [--peers NAMES] [--engine stub|vllm] [--rounds N] [--sessions N] [--turns N]
        [--agents N]

AIPerf (`scripts/setup aiperf`; .venv-aiperf) loads harmonium and the named gateways in turn, in another order in each
round, before an engine that says 64 tokens, one every 5 ms. Each session is continued by `previous_response_id`:
sessions of made-up text, then sessions as agents hold them, with some 50,000 tokens first and the results of tools
behind. AIPerf's quantiles stand beside those of the service's own /metrics. Before a real vLLM on the CPU, whose talker
takes 4,096 tokens, there is made-up text alone, and `vllm` is its own Responses API; there each gateway is also asked
whether the model gets what was said before. The network isn't asked for anything.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from bench._harness import HOST
from bench._peers.servers import LITELLM, LITELLM_CHAT, OGX, OURS, SMG, VLLM, Engine, Peer, running
from bench._peers.vocabulary import write_vocabulary
from bench._vllm import TALKER, Vllm, listening_process, served

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / ".venv-aiperf/bin/aiperf"
MOST_SECONDS = 1_800.0

VOCABULARY = "o200k_base"
"""What AIPerf's own tokenizer would fetch."""

CONCURRENCY = 4
TURN_TOKENS = 200
"""The tokens that a made-up turn sends."""

ANSWER_TOKENS = 200
"""More than an answer has: AIPerf doesn't continue a response that was cut off."""

TOKEN_MS = 5.0
MOST_CONTEXT = 100_000
"""The tokens at which AIPerf's sessions of agents end: the engine takes 131,072."""

FIRST_TARGET = 1.0
"""The most until the first token at p50, of another's."""

OTHERS = (VLLM, SMG, LITELLM, LITELLM_CHAT, OGX)
SAID = ("My name is Bob, and I like the colour green.", "Hello again.", "And again.")
"""The turns that show whether a gateway sends what was said before."""

FIRST = "time_to_first_token"
SHOWN = {
    FIRST: ("harmonium_time_to_first_token_seconds", {"mode": "stream"}),
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
    chained = ["--extra-inputs", '{"store": true, "temperature": 0}', "--use-server-token-count"]
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


class Measured(NamedTuple):
    """A gateway under a load: AIPerf's figures, the seconds of CPU, the bytes of memory after it, and both quantiles
    by the service's own histograms.
    """

    load: Load
    peer: Peer
    found: Mapping[str, Any]
    cpu: float
    held: int
    own: Mapping[str, tuple[float, float]]

    @property
    def made(self) -> int:
        """The requests that were answered without an error."""
        return round(self.found["request_count"]["avg"])

    @property
    def cpu_ms(self) -> float:
        """Of a request."""
        return 1000 * self.cpu / self.load.requests

    def avg(self, name: str) -> float:
        """A figure of AIPerf's that has no quantiles."""
        return float(self.found[name]["avg"])

    def ms(self, name: str, part: int = 50) -> float:
        """Milliseconds, by AIPerf's name and as so many hundredths of the requests have them at most."""
        return float(self.found[name][f"p{part}"])

    def tell(self) -> None:
        """Print it."""
        print(f"{self.load.name}, {self.peer.name}: {self.made} of {self.load.requests} answered")
        for name in SHOWN:
            told = f"  {name}: p50 {self.ms(name):.1f} ms, p99 {self.ms(name, 99):.1f} ms"
            if name in self.own:
                told += "; by /metrics {:.1f} and {:.1f} ms".format(*self.own[name])
            print(told)
        print(f"  {self.avg('request_throughput'):.1f} requests a second, {self.cpu_ms:.1f} ms of CPU each", end="")
        tokens = self.found["output_sequence_length"]["avg"]
        print(f"; {self.found['http_req_data_sent']['p50']:.1f} KB sent at p50, {tokens:.0f} tokens got")


def measured(load: Load, peer: Peer, env: Mapping[str, str], folder: Path) -> Measured:
    """Measure a gateway under a load. Raises CalledProcessError."""
    peer.pace(TOKEN_MS)
    before, spent = buckets(peer.port) if peer.name == OURS else {}, peer.cpu_seconds()
    found = measure(load, peer, env, folder)
    cpu = peer.cpu_seconds() - spent
    after = buckets(peer.port) if before else {}
    own = {name: (quantile(0.5, before[name], now), quantile(0.99, before[name], now)) for name, now in after.items()}
    return Measured(load, peer, found, cpu, peer.held_bytes(), own)


def prompts(peer: Peer) -> list[int]:
    """The tokens of the prompts of a short session's turns, as the engine counted them. Raises HTTPError."""
    counted, before = list[int](), dict[str, str]()
    for text in SAID:
        body = {"model": peer.model, "input": text, "store": True, "temperature": 0, **before}
        headers = {"content-type": "application/json"}
        asked = urllib.request.Request(f"http://{HOST}:{peer.port}/v1/responses", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked, timeout=MOST_SECONDS) as answer:
            told = json.load(answer)
        before = {"previous_response_id": told["id"]}
        counted.append(told["usage"]["input_tokens"])
    return counted


Runs = Mapping[str, Sequence[Measured]]
"""By gateway, those of each round."""


def compare(load: Load, peers: Sequence[Peer], rounds: int, env: Mapping[str, str], folder: Path) -> Runs:
    """Measure the gateways in turns. Raises CalledProcessError."""
    runs: dict[str, list[Measured]] = {peer.name: [] for peer in peers}
    for number in range(rounds):
        first = number % len(peers)
        for peer in (*peers[first:], *peers[:first]):
            runs[peer.name].append(measured(load, peer, env, folder / f"{load.name}-{peer.name}-{number}"))
            runs[peer.name][-1].tell()
    return runs


def table(load: Load, runs: Runs) -> Iterator[str]:
    """The medians of the rounds."""
    yield f"| {load.name} | Answered | A second | First token, ms: p50, p99 | Whole, ms: p50 | CPU, ms | Memory, MB |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, own in runs.items():
        first, last = (median(each.ms(FIRST, part) for each in own) for part in (50, 99))
        whole, cpu = median(each.ms("request_latency") for each in own), median(each.cpu_ms for each in own)
        rate, made = median(each.avg("request_throughput") for each in own), sum(each.made for each in own)
        told = f"{made} of {load.requests * len(own)} | {rate:.1f} | {first:.1f}, {last:.1f} | {whole:.0f} | {cpu:.1f}"
        yield f"| {name} | {told} | {own[-1].held / 1e6:.0f} |"


@contextmanager
def engine(name: str) -> Iterator[Engine | None]:
    """A vLLM with the talker, where that is asked for."""
    if name != VLLM:
        yield None
        return
    with Vllm(TALKER) as vllm:
        yield Engine(vllm.port, served(vllm.port), listening_process(vllm.port))


def met(found: Sequence[tuple[Load, Runs]]) -> bool:
    """Print the service's targets, and whether all are met."""
    whole = all(each.made == load.requests for load, runs in found for each in runs[OURS])
    print(f"\naiperf: all requests answered, none with an error: {'yes' if whole else 'no'} (target yes)")
    ratios: list[float] = []
    for load, runs in found:
        for name in [*runs][1:]:
            pairs = zip(runs[OURS], runs[name], strict=True)
            ratios.append(median(ours.ms(FIRST) / theirs.ms(FIRST) for ours, theirs in pairs))
            told = f"first token at p50, {load.name}, of {name}'s: {ratios[-1]:.2f} (target <= {FIRST_TARGET:g})"
            print(f"aiperf: {told}")
    return whole and max(ratios) <= FIRST_TARGET


def main() -> int:
    """0, or 1 when --check is given and a target missed."""
    parser = argparse.ArgumentParser(description="the service as AIPerf measures it")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--peers", default=SMG, help=f"those beside it, of {', '.join(OTHERS)} (smg)")
    parser.add_argument("--engine", choices=("stub", VLLM), default="stub", help="what all of them ask (stub)")
    parser.add_argument("--rounds", type=int, default=1, help="how often each is measured (1)")
    parser.add_argument("--sessions", type=int, default=50, help="how many sessions of made-up text (50)")
    parser.add_argument("--turns", type=int, default=6, help="how many turns each of them has (6)")
    parser.add_argument("--agents", type=int, default=4, help="how many sessions of agents, before the stub (4)")
    options = parser.parse_args()
    names = [OURS, *options.peers.split(",")]
    if unknown := set(names[1:]) - {*OTHERS}:
        parser.error(f"no gateway is called {unknown.pop()}: there are {', '.join(OTHERS)}")
    subprocess.run([ROOT / "scripts/setup", "aiperf"], check=True)
    with tempfile.TemporaryDirectory() as kept, engine(options.engine) as asked, running(names, asked) as peers:
        folder = Path(kept)
        write_vocabulary(VOCABULARY, folder)
        env = {**os.environ, "TIKTOKEN_CACHE_DIR": kept, "HOME": kept}
        loads = [made_up(options.sessions, options.turns)]
        if asked is None:
            loads.append(agentic(options.agents, env, folder / "agents"))
        else:
            for peer in peers:
                print(f"{peer.name}: prompts of a session's turns, in tokens: {prompts(peer)}")
        found = [(load, compare(load, peers, options.rounds, env, folder)) for load in loads]
    for load, runs in found:
        print("", *table(load, runs), sep="\n")
    return 0 if met(found) or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
