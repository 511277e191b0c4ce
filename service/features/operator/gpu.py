"""`harmonium doctor --gpu`: whether vLLM's image can run gpt-oss on this machine: its driver, the memory of its GPUs,
the container toolkit, and the disk.

It is for the host of vLLM, and not for harmonium's container. A program that is asked may hang, as nvidia-smi does with
a broken driver, and so has a bound of time.
"""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import NamedTuple

from store.doctor.doctor import Finding, Level, finding
from store.guard import free_bytes

ANSWER_SECONDS = 10.0
"""How long a program may take to answer."""

FACTS = "name,driver_version,compute_cap,memory.total,memory.free"
QUERY = ("nvidia-smi", f"--query-gpu={FACTS}", "--format=csv,noheader,nounits")

DRIVER = 580
"""The first branch of drivers that runs CUDA 13, which vLLM's images have."""

COMPATIBLE = ("535", "570")
"""Older branches that run it on datacenter cards, by libraries of the image."""

OLDEST = 8.0
"""The first compute capability for which vLLM has kernels of gpt-oss' weights (MXFP4): Ampere's."""

LEAST_MIB = 15_000
"""The memory of a card of 16 GB, as the driver counts it."""

SHARE = 0.9
"""How much of a GPU's memory vLLM takes, unless told otherwise; it doesn't start where less is free."""

SMALL_GB, LARGE_GB, IMAGE_GB = 14, 65, 10
"""The disk that the weights of gpt-oss-20b take, those of gpt-oss-120b, and vLLM's image."""

DOCKER = Path("/var/lib/docker")


class Silent(Exception):
    """A program isn't there, fails, or takes too long; the message says which."""


class Gpu(NamedTuple):
    """A GPU, with its memory in MiB; 0 where the driver doesn't say it."""

    name: str
    driver: str
    capability: str
    total: int
    free: int


def examine_gpu() -> list[Finding]:
    """The findings on this machine; a single one where there is no GPU."""
    try:
        gpus = _gpus(_answer(QUERY))
    except Silent as error:
        now, why = f"no NVIDIA GPU that can be used here: {error}", "gpt-oss on vLLM needs one"
        remedy = f"on the host, install NVIDIA's driver R{DRIVER} or newer, or have HARMONIUM_ENGINE_URL name another"
        return [finding("GPU", why, (Level.UNSAFE, now, remedy))]
    return [_driver(gpus), *_too_old(gpus), _memory(gpus), _toolkit(), _disk()]


def _answer(command: Sequence[str]) -> str:
    """The output of a program. Raises Silent."""
    try:
        asked = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    except OSError:
        raise Silent(f"there is no {command[0]}") from None
    try:
        said, _ = asked.communicate(timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        asked.kill()
        with suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel outlives this
            asked.communicate(timeout=1)
        raise Silent(f"{command[0]} does not answer within {ANSWER_SECONDS:g} s") from None
    if asked.returncode:
        raise Silent(f"{command[0]} fails: {' '.join(said.split())[:200] or f'status {asked.returncode}'}")
    return said


def _gpus(said: str) -> list[Gpu]:
    """The GPUs that nvidia-smi lists. Raises Silent where these are none."""
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.count(",") == 4]
    if not rows:
        raise Silent("nvidia-smi lists none")
    return [Gpu(row[0], row[1], row[2], *(int(cell) if cell.isdecimal() else 0 for cell in row[3:])) for row in rows]


def _driver(gpus: Sequence[Gpu]) -> Finding:
    """Whether the driver runs the CUDA of vLLM's images."""
    driver, names = gpus[0].driver, ", ".join(sorted({gpu.name for gpu in gpus}))
    branch, remedy = driver.partition(".")[0], f"install a driver of R{DRIVER} or newer"
    level = Level.OK if branch.isdecimal() and int(branch) >= DRIVER else Level.UNSAFE
    if branch in COMPATIBLE and "GeForce" not in names:
        level, remedy = Level.WARN, f"set VLLM_ENABLE_CUDA_COMPATIBILITY=1 for vLLM on a datacenter card, or {remedy}"
    return finding("GPU driver", "vLLM's images have CUDA 13", (level, f"{driver}, for {names}", remedy))


def _too_old(gpus: Sequence[Gpu]) -> list[Finding]:
    """The GPUs that are too old for gpt-oss; nothing where none is, or the driver doesn't say."""
    known = [gpu for gpu in gpus if gpu.capability.replace(".", "", 1).isdecimal()]
    old = [f"{gpu.name} has {gpu.capability}" for gpu in known if float(gpu.capability) < OLDEST]
    why, remedy = f"gpt-oss' weights need compute capability {OLDEST:g}", "use a GPU of the Ampere generation or newer"
    return [finding("GPU generation", why, (Level.UNSAFE, "; ".join(old), remedy))] if old else []


def _memory(gpus: Sequence[Gpu]) -> Finding:
    """Whether a GPU has room for a model."""
    why = f"gpt-oss-20b needs a GPU with 16 GB, gpt-oss-120b one with 80 GB; vLLM takes {SHARE:.0%} of it at its start"
    free = (f"{gpu.free / 1024:,.0f} of {gpu.total / 1024:,.0f} GiB free" if gpu.total else "not told" for gpu in gpus)
    fits = any(gpu.total >= LEAST_MIB and gpu.free >= SHARE * gpu.total for gpu in gpus)
    remedy = "end other programs, or give vLLM a lower --gpu-memory-utilization or more GPUs (--tensor-parallel-size)"
    return finding("GPU memory", why, (Level.OK if fits else Level.WARN, "; ".join(free), remedy))


def _toolkit() -> Finding:
    """Whether containers can have the GPU."""
    why, found = "with Docker Compose vLLM runs in a container", which("nvidia-ctk")
    if not found and which("docker") is None:
        return finding("container toolkit", why, (Level.OK, "no Docker here, so none is needed", ""))
    remedy = "install the NVIDIA Container Toolkit, run `nvidia-ctk runtime configure --runtime=docker`, restart Docker"
    return finding("container toolkit", why, (Level.OK if found else Level.WARN, found or "not installed", remedy))


def _disk() -> Finding:
    """Whether the weights, and with Docker the image, have room."""
    docker = which("docker") is not None
    place, need = (DOCKER, SMALL_GB + IMAGE_GB) if docker else (Path.home() / ".cache/huggingface", SMALL_GB)
    why = f"gpt-oss-20b takes {SMALL_GB} GB, gpt-oss-120b {LARGE_GB} GB{f', the image {IMAGE_GB} GB' if docker else ''}"
    free = free_bytes(next(folder for folder in (place, *place.parents) if folder.exists())) / 1e9
    fits = "neither" if free < need else "gpt-oss-20b" if free < need - SMALL_GB + LARGE_GB else "both"
    remedy = "make room there, unless it has the weights already; HF_CACHE names another folder"
    verdict = Level.OK if free >= need else Level.WARN, f"{free:,.0f} GB free at {place}: enough for {fits}", remedy
    return finding("disk for a model", why, verdict)
