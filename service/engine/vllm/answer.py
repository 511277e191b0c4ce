"""The events of a vLLM server's stream. Pure."""

from service.engine.servers.answer import Answer
from service.engine.vllm import wire


class VllmAnswer(Answer):
    """A stream of either endpoint."""

    name = wire.NAME

    def _take(self, payload: bytes) -> None:
        event = wire.read_event(payload)
        if event.cached_tokens is not None:
            self._cached_tokens = event.cached_tokens
        for choice in () if self.finished else event.choices:
            if self._alternatives is not None:
                self._logprobs += wire.read_logprobs(choice, self._alternatives, decoded=self._decoded)
            if self._decoded and choice.text:
                self._text.append(choice.text)
            self._tokens += choice.token_ids or ()
            if choice.finish_reason is not None:
                self._finish_as(choice.finish_reason)
