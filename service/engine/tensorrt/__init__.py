"""TensorRT-LLM behind the engine's port: `trtllm-serve` over HTTP.

`servers` is the kind, `wire` and `answer` know how such a server is asked and answers. Read in the source of
TensorRT-LLM of 2026: no real one was ever asked, so tests hold what is said here against a stand-in alone.
"""
