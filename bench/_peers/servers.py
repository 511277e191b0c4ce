"""The gateways that are compared: how each is installed and started before an engine.

Each has a Redis or a database of its own, so that what it stores is its own alone. Before a stub engine each has one
core, and the engines, the stores and the client share the other; before a vLLM nothing is bound to a core.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from bench._harness import HOST, OTHER_CORE, SERVER_CORE, cpu_seconds, family, free_port, held_bytes, keep_to
from bench._peers.vocabulary import write_vocabulary

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 300.0
STOP_SECONDS = 10.0
LOG_CHARS = 2000

OURS, SMG = "harmonium", "smg"
"""Both speak Harmony themselves, and keep what was said in Redis."""

VLLM, LITELLM, LITELLM_CHAT, OGX = "vllm", "litellm", "litellm-chat", "ogx"
"""vLLM's own store; LiteLLM's proxy, which passes responses through or translates them; OGX, with its own store."""


@dataclass
class Engine:
    """The engine that all gateways ask: a stub, or a vLLM with the process of its API server."""

    port: int
    model: str
    pid: int | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{HOST}:{self.port}"


@dataclass
class Peer:
    """A gateway that runs."""

    name: str
    port: int
    model: str
    pid: int
    engine: Engine
    pace_port: int | None = None
    """Where its engine is told how fast to be, if that is a stub."""
    store_pid: int | None = None
    """Its Redis."""

    def cpu_seconds(self) -> float:
        """Processor time of it and what it has started, and of vLLM's API server; not of its engine."""
        own = set() if self.name == VLLM else set(family(self.pid))
        return sum(map(cpu_seconds, own | ({self.engine.pid} if self.engine.pid else set())))

    def store_seconds(self) -> float:
        """Processor time of its Redis; 0 where it has none."""
        return 0.0 if self.store_pid is None else cpu_seconds(self.store_pid)

    def held_bytes(self) -> int:
        """Resident memory of it and what it has started; of vLLM that of its API server alone."""
        return sum(map(held_bytes, [self.pid] if self.name == VLLM else family(self.pid)))

    def pace(self, milliseconds: float) -> None:
        """Have its engine take so long for a token, where that is a stub; 0 is at once."""
        if self.pace_port is None:
            return
        with urlopen(f"http://{HOST}:{self.pace_port}/pace?ms={milliseconds}", data=b""):
            pass


class Place:
    """Where everything runs: a folder, and what was started there, which ends with it."""

    def __init__(self, folder: Path, running: ExitStack, *, apart: bool) -> None:
        """`apart` binds each process to its core."""
        self.folder = folder
        self._running, self._apart = running, apart

    def start(
        self, name: str, command: Sequence[str], *, core: int, env: Mapping[str, str] | None = None, url: str = ""
    ) -> int:
        """Start a process on a core, wait until `url` answers, and say its id. Raises SystemExit where it doesn't."""
        path = self.folder / f"{name}.log"
        outside = {key: value for key, value in os.environ.items() if not key.startswith("HARMONIUM_")}
        with path.open("w") as log:
            process = subprocess.Popen(
                command, env={**outside, **(env or {})}, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        if self._apart:
            keep_to(core, process.pid)
        self._running.callback(_stop, process)
        deadline = time.monotonic() + START_SECONDS
        while url and not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{name} did not start:\n{path.read_text()[-LOG_CHARS:]}")
            time.sleep(0.05)
        return process.pid


@contextmanager
def running(names: Sequence[str] = (OURS, SMG), vllm: Engine | None = None) -> Iterator[list[Peer]]:
    """These gateways, ready and asked nothing yet, before a vLLM or else a stub. Installs what is missing."""
    with ExitStack() as stack:
        place = Place(Path(stack.enter_context(tempfile.TemporaryDirectory())), stack, apart=vllm is None)
        engine = vllm or _stub(place)
        yield [_STARTS[name](place, engine, name) for name in names]


def _stub(place: Place) -> Engine:
    engine = Engine(free_port(), "stub")
    command = [sys.executable, "-m", "bench._peers.engine", str(engine.port)]
    place.start("engine", command, core=OTHER_CORE, env={"PYTHONPATH": str(ROOT)}, url=f"{engine.url}/v1/models")
    return engine


def _ours(place: Place, engine: Engine, name: str) -> Peer:
    port, (redis, redis_pid) = free_port(), _redis(place, name)
    env = {
        "PYTHONPATH": str(ROOT),
        "HARMONIUM_PORT": str(port),
        "HARMONIUM_REDIS_URL": f"redis://{HOST}:{redis}/0",
        "HARMONIUM_ENGINE": "vllm",
        "HARMONIUM_ENGINE_URL": engine.url,
        "HARMONIUM_DATA_DIR": str(place.folder / name),
    }
    command = [sys.executable, "-m", "service", "serve"]
    pid = place.start(name, command, core=SERVER_CORE, env=env, url=f"http://{HOST}:{port}/ready")
    return Peer(name, port, engine.model, pid, engine, _pace(engine), redis_pid)


def _smg(place: Place, engine: Engine, name: str) -> Peer:
    """smg before a stub that speaks its gRPC, where it makes and reads Harmony itself; before vLLM's own Responses API,
    where it only sends what was said before.
    """
    programs, port, (redis, redis_pid) = _installed(name), free_port(), _redis(place, name)
    command = [
        *(str(programs / "smg"), "launch", "--host", HOST, "--port", str(port)),
        *("--prometheus-port", str(free_port()), "--log-level", "warn"),
        *("--history-backend", "redis", "--redis-url", f"redis://{HOST}:{redis}/0"),
    ]
    pace, env, ready = None, dict[str, str](), "readiness"  # models are listed only where it speaks gRPC
    if engine.pid is None:
        pace, model = free_port(), place.folder / "model"
        url = _grpc_stub(place, programs, model, pace)
        command += ["--worker-urls", url, "--backend", "vllm", "--model-path", str(model)]
        env, ready = {"TIKTOKEN_ENCODINGS_BASE": str(model / "tiktoken")}, "v1/models"
    else:
        command += ["--worker-urls", engine.url, "--backend", "openai"]
    pid = place.start(name, command, core=SERVER_CORE, env=env, url=f"http://{HOST}:{port}/{ready}")
    return Peer(name, port, engine.model, pid, engine, pace, redis_pid)


def _grpc_stub(place: Place, programs: Path, model: Path, pace: int) -> str:
    model.mkdir()
    env, port = {"PYTHONPATH": str(ROOT)}, free_port()
    subprocess.run([programs / "python", "-m", "bench._peers.model_folder", model], env=env, check=True)
    command = [str(programs / "python"), "-m", "bench._peers.grpc_engine", str(port), str(pace), str(model)]
    place.start("grpc-engine", command, core=OTHER_CORE, env=env, url=f"http://{HOST}:{pace}/health")
    return f"grpc://{HOST}:{port}"


def _vllm(place: Place, engine: Engine, name: str) -> Peer:
    """vLLM itself, which keeps responses in its memory where it is started so. Raises SystemExit before a stub."""
    if engine.pid is None:
        raise SystemExit("a stub engine has no store of its own: --engine vllm has")
    return Peer(name, engine.port, engine.model, engine.pid, engine)


def _litellm(place: Place, engine: Engine, name: str) -> Peer:
    """LiteLLM without its database, whose client Prisma gets from a host of its own."""
    programs, port, settings = _installed(LITELLM), free_port(), place.folder / f"{name}.json"
    asked = {
        "model": f"hosted_vllm/{engine.model}",
        "api_base": f"{engine.url}/v1",
        "api_key": "none",
        "use_chat_completions_api": name == LITELLM_CHAT,
    }
    models = [{"model_name": engine.model, "litellm_params": asked}]
    told = {"model_list": models, "litellm_settings": {"telemetry": False}}
    settings.write_text(json.dumps(told | {"general_settings": {"disable_spend_logs": True}}))
    env = {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
    }
    command = [programs / "litellm", "--config", settings, "--host", HOST, "--port", port, "--num_workers", 1]
    url = f"http://{HOST}:{port}/health/liveliness"
    pid = place.start(name, [*map(str, command)], core=SERVER_CORE, env=env, url=url)
    return Peer(name, port, engine.model, pid, engine, _pace(engine))


def _ogx(place: Place, engine: Engine, name: str) -> Peer:
    """OGX with SQLite, as its own distribution has it, and the providers alone that its Responses API needs."""
    programs, port, folder = _installed(name), free_port(), place.folder / name
    folder.mkdir()
    settings = folder / "run.json"
    settings.write_text(json.dumps(_ogx_settings(folder, engine, port)))
    write_vocabulary("cl100k_base", folder)
    env = {
        "TIKTOKEN_CACHE_DIR": str(folder),
        "OGX_LOGGING": "all=error",
        "OGX_LOG_FORMAT": "json",
        "HF_HUB_OFFLINE": "1",
        "OTEL_SDK_DISABLED": "true",
        "HOME": str(folder),
    }
    command = [str(programs / "ogx"), "run", str(settings), "--insecure"]
    pid = place.start(name, command, core=SERVER_CORE, env=env, url=f"http://{HOST}:{port}/v1/models")
    return Peer(name, port, f"vllm/{engine.model}", pid, engine, _pace(engine))


def _ogx_settings(folder: Path, engine: Engine, port: int) -> Mapping[str, Any]:
    def provided(kind: str, name: str, **config: Any) -> list[Mapping[str, Any]]:
        return [{"provider_id": name, "provider_type": f"{kind}::{name}", "config": config}]

    def stored(name: str) -> dict[str, Any]:
        return {"table_name": name, "backend": "sql_default", "max_write_queue_size": 10_000, "num_writers": 4}

    model = {"model_id": engine.model, "provider_id": "vllm", "provider_model_id": engine.model, "model_type": "llm"}
    files = {"table_name": "files_metadata", "backend": "sql_default"}
    return {
        "version": 2,
        "distro_name": "bench",
        "apis": ["files", "inference", "responses", "tool_runtime", "vector_io"],
        "providers": {
            "inference": provided("remote", "vllm", base_url=f"{engine.url}/v1", max_tokens=4096, api_token="none"),
            "vector_io": provided("inline", "faiss", persistence={"namespace": "vectors", "backend": "kv_default"}),
            "files": provided("inline", "localfs", storage_dir=str(folder / "files"), metadata_store=files),
            "responses": provided("inline", "builtin", persistence={"responses": stored("responses")}),
            "tool_runtime": provided("remote", "model-context-protocol"),
        },
        "storage": {
            "backends": {
                "kv_default": {"type": "kv_sqlite", "db_path": str(folder / "kv.db")},
                "sql_default": {"type": "sql_sqlite", "db_path": str(folder / "sql.db")},
            },
            "stores": {
                "metadata": {"namespace": "registry", "backend": "kv_default"},
                "inference": stored("inference_store") | {"enabled": True},
                "conversations": {"table_name": "openai_conversations", "backend": "sql_default"},
                "prompts": {"table_name": "prompts", "backend": "sql_default"},
                "connectors": {"table_name": "connectors", "backend": "sql_default"},
            },
        },
        "registered_resources": {"models": [{"metadata": {}, **model}], "vector_stores": []},
        "server": {"port": port, "host": HOST},
    }


def _pace(engine: Engine) -> int | None:
    return engine.port if engine.pid is None else None


_STARTS = {OURS: _ours, SMG: _smg, VLLM: _vllm, LITELLM: _litellm, LITELLM_CHAT: _litellm, OGX: _ogx}
"""How each is started before an engine."""


def _installed(name: str) -> Path:
    """Where the programs of a rival are, which are installed if they aren't there."""
    subprocess.run([ROOT / "scripts" / "setup", f"peer-{name}"], check=True)
    return ROOT / f".venv-peer-{name}" / "bin"


def _redis(place: Place, name: str) -> tuple[int, int]:
    """A Redis that keeps what it has as the service's own does; its port and process."""
    program, port, folder = shutil.which("redis-server"), free_port(), place.folder / f"redis-{name}"
    if program is None:
        raise SystemExit("there is no redis-server on the PATH")
    folder.mkdir()
    options = ("--port", str(port), "--save", "", "--appendonly", "yes", "--dir", str(folder))
    pid = place.start(f"redis-{name}", [program, *options], core=OTHER_CORE)
    deadline = time.monotonic() + START_SECONDS
    while not _listens(port):
        if time.monotonic() > deadline:
            raise SystemExit("redis-server did not start in time")
        time.sleep(0.01)
    return port, pid


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=2):
            return True
    except (URLError, OSError):
        return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
