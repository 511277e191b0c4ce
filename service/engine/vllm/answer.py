"""The events of a vLLM server's stream. Pure."""

from service.engine.servers.answer import Answer
from service.engine.vllm import wire


class VllmAnswer(Answer):
    """A stream of either endpoint."""

    name = wire.NAME

    def _take(self, payload: bytes) -> None:
        event = wire.read_event(payload)
        if event.usage is not None and event.usage.cached_tokens is not None:
            self._cached_tokens = event.usage.cached_tokens
        if self._finish is not None:
            return
        for choice in event.choices:
            if self._alternatives is not None:
                self._logprobs += wire.read_logprobs(choice, self._alternatives, decoded=self._decoded)
            if self._decoded and choice.text:
                self._text.append(choice.text)
            if choice.token_ids:
                self._tokens += choice.token_ids
            if choice.finish_reason is not None:
                self._finish_as(choice.finish_reason)
