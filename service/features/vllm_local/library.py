"""The part of vLLM's library that we use: to start, ask and read it. vLLM 0.32, and only where it is installed.

The import takes seconds and needs vLLM, so it happens only when an engine starts. Its classes come without types.
Never let an object of vLLM's out of this package.
"""

import dataclasses
import difflib
import os
import signal
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import resource_tracker
from typing import Any

from service.engine.port import LEAST_LOGPROB, EngineError, EngineUnavailable, Sampling, TokenLogprobs
from service.engine.servers.kind import SHOWN_CHARS
from service.engine.vllm.servers import parameters
from service.settings.group import with_extra

ARGUMENTS: Mapping[str, Any] = {
    "enable_prefix_caching": True,
    "scheduling_policy": "priority",
    # else layers with a sliding window keep little more than a prompt's end, and what was sampled is computed anew
    "prefix_cache_retention_interval": 128,
    "disable_log_stats": True,
}
"""The engine arguments, unless the caller's say otherwise."""

ENVIRONMENT: Mapping[str, str] = {
    # a forked core would inherit our port, our connections and our log's locks
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # xgrammar's cache hands out the masks of earlier structural tags that name tokens
    "VLLM_XGRAMMAR_CACHE_MB": "0",
    # configuring its log closes the handlers of ours; so its lines go to ours, and its processes warn on stderr
    "VLLM_CONFIGURE_LOGGING": "0",
    # no usage data is sent
    "VLLM_NO_USAGE_STATS": "1",
}
"""Settings of vLLM as a guest; it reads these from the environment alone."""

CORE = "EngineCore"
"""vLLM's name of the process that computes, or with a number behind it of each of them."""

TERMINAL_SIGNALS = frozenset({signal.SIGINT, signal.SIGHUP})
"""Signals that a terminal sends to every process: only we take them, to give open streams time before vLLM ends."""


@dataclasses.dataclass(frozen=True)
class VllmLibrary:
    """vLLM's classes and functions, and its exceptions by what they mean."""

    async_llm: Any
    engine_args: Any
    tokens_input: Any
    sampling_params: Any
    structured_outputs: Any
    delta: Any
    kill_tree: Callable[[int], None]
    refusals: tuple[type[Exception], ...]
    overload: type[Exception]
    wrapper: type[Exception]

    def build(self, model: str, args: Mapping[str, Any]) -> Any:
        """Start an AsyncLLM, whose processes are children of this one. Blocks until it is ready. Raises
        EngineUnavailable, and vLLM's own errors.
        """
        self._check_names(args)
        with _kept_from_children(TERMINAL_SIGNALS):
            return self.async_llm.from_engine_args(self.engine_args(model=model, **{**ARGUMENTS, **args}))

    def prompt(self, ids: Sequence[int], cache_salt: str | None) -> Any:
        """A prompt of token ids."""
        return self.tokens_input(list(ids), cache_salt=cache_salt)

    def parameters(self, sampling: Sampling) -> Any:
        """Parameters of sampling that ask for new tokens each time. Raises one of `refusals`."""
        tag = sampling.structural_tag
        return self.sampling_params(
            **parameters(sampling),
            structured_outputs=None if tag is None else self.structured_outputs(structural_tag=tag),
            detokenize=False,
            output_kind=self.delta,
        )

    def _check_names(self, args: Mapping[str, Any]) -> None:
        """Raise EngineUnavailable for an argument that vLLM doesn't know, or that has its own setting."""
        known = [field.name for field in dataclasses.fields(self.engine_args)]
        for name in args:
            if name == "model":
                raise EngineUnavailable("HARMONIUM_LOCAL_ARGS must not name the model; HARMONIUM_LOCAL_MODEL does")
            if name not in known:
                similar = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {similar[0]!r}?" if similar else ""
                raise EngineUnavailable(f"HARMONIUM_LOCAL_ARGS: vLLM has no engine argument {name[:100]!r}{hint}")


def load() -> VllmLibrary:
    """Import vLLM, with ENVIRONMENT set in this process. Raises EngineUnavailable where it isn't installed."""
    os.environ.update(ENVIRONMENT)
    try:
        sampling, exceptions = import_module("vllm.sampling_params"), import_module("vllm.exceptions")
        return VllmLibrary(
            async_llm=import_module("vllm.v1.engine.async_llm").AsyncLLM,
            engine_args=import_module("vllm.engine.arg_utils").AsyncEngineArgs,
            tokens_input=import_module("vllm.inputs").tokens_input,
            sampling_params=sampling.SamplingParams,
            structured_outputs=sampling.StructuredOutputsParams,
            delta=sampling.RequestOutputKind.DELTA,
            kill_tree=import_module("vllm.utils.system_utils").kill_process_tree,
            refusals=(exceptions.VLLMClientError, ValueError),
            overload=exceptions.GracefulHTTPError,
            wrapper=import_module("vllm.v1.engine.exceptions").EngineGenerateError,
        )
    except ImportError as error:
        raise EngineUnavailable(
            f"vLLM can't be imported ({brief(error)}): {with_extra('vllm')}, or let HARMONIUM_ENGINE=vllm and "
            "HARMONIUM_ENGINE_URL name a server"
        ) from error


@contextmanager
def _kept_from_children(signals: Collection[signal.Signals]) -> Generator[None]:
    """Blocks these signals for processes that this thread starts meanwhile: they inherit the mask."""
    resource_tracker.ensure_running()  # it unblocks SIGINT when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def read_logprobs(completion: Any, alternatives: int) -> list[TokenLogprobs]:
    """The log probabilities of a completion's tokens. Of each, vLLM gives the sampled one too, likely or not."""
    logprobs: Any = completion.logprobs or []
    if len(logprobs) != len(completion.token_ids):
        raise EngineError("vLLM gave tokens without their log probabilities")
    read: list[TokenLogprobs] = []
    for token, given in zip(completion.token_ids, logprobs, strict=True):
        finite = {id: max(each.logprob, LEAST_LOGPROB) for id, each in given.items()}
        likeliest = sorted(finite.items(), key=lambda each: -each[1])[:alternatives]
        read.append(TokenLogprobs(finite[token], tuple(likeliest)))
    return read


def brief(error: BaseException) -> str:
    """The message of an exception of vLLM, in one line of sensible length."""
    return " ".join(str(error).split())[:SHOWN_CHARS] or type(error).__name__
