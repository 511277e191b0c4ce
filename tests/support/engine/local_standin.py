"""A stand-in for vLLM as a library: it gives what it was told to, and remembers what it was asked."""

import dataclasses
from collections.abc import AsyncGenerator, Iterable, Sequence
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from service.features.vllm_local import library
from service.features.vllm_local.local import VllmLocalEngine


def is_installed() -> bool:
    """Whether the real one is. A folder of this name is found too, but as nothing that has a file."""
    found = find_spec("vllm")
    return found is not None and found.origin is not None


class Refusal(Exception):
    """vLLM's word for a bad request."""


class Overload(Exception):
    """vLLM's word for too many requests."""


class Wrapper(Exception):
    """What vLLM hides an unforeseen exception behind."""


@dataclasses.dataclass
class EngineArgs:
    """vLLM's arguments, a few of them."""

    model: str
    max_model_len: int = 4096
    enable_prefix_caching: bool = False
    scheduling_policy: str = "fcfs"
    disable_log_stats: bool = False
    prefix_cache_retention_interval: int = 0


class Llm:
    """Stands in for AsyncLLM: gives what it was told to for every generation but the first, which is the warm-up."""

    def __init__(self, *outputs: Any) -> None:
        self.outputs = outputs
        self.asked: list[tuple[Any, Any, str, dict[str, Any]]] = []
        self.args: EngineArgs | None = None
        self.errored = False
        self.output_handler = None
        self.stopped = 0

    @property
    def vllm_config(self) -> Any:
        assert self.args is not None
        sampling = {"temperature": 0.6, "top_k": 20, "max_tokens": 100}
        return SimpleNamespace(
            model_config=SimpleNamespace(
                served_model_name=self.args.model,
                max_model_len=self.args.max_model_len,
                get_diff_sampling_param=lambda: sampling,
            )
        )

    def from_engine_args(self, args: EngineArgs) -> "Llm":
        self.args = args
        return self

    async def generate(self, prompt: Any, parameters: Any, id: str, **options: Any) -> AsyncGenerator[Any, None]:
        self.asked.append((prompt, parameters, id, options))
        outputs = self.outputs if len(self.asked) > 1 else (output([1], "stop"),)
        for each in outputs:
            if isinstance(each, Exception):
                raise each
            yield each

    async def abort(self, ids: Iterable[str]) -> None:
        assert not list(ids)

    async def is_tracing_enabled(self) -> bool:
        return True

    def shutdown(self, timeout: float) -> None:
        self.stopped += 1


def output(ids: Sequence[int], reason: str | None = None, logprobs: Any = None) -> Any:
    completion = SimpleNamespace(token_ids=ids, finish_reason=reason, logprobs=logprobs)
    return SimpleNamespace(outputs=[completion], num_cached_tokens=128)


def vllm(llm: Llm) -> library.VllmLibrary:
    return library.VllmLibrary(
        async_llm=llm,
        engine_args=EngineArgs,
        tokens_input=lambda ids, cache_salt: (ids, cache_salt),
        sampling_params=SimpleNamespace,
        structured_outputs=SimpleNamespace,
        delta="delta",
        kill_tree=lambda pid: None,
        refusals=(Refusal, ValueError),
        overload=Overload,
        wrapper=Wrapper,
    )


class WatchedLocal(VllmLocalEngine):
    """vLLM in this process, which says how many generations are under way."""

    @property
    def running(self) -> int:
        return len(self._under_way)
