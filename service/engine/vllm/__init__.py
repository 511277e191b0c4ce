"""vLLM behind the engine's port: servers over HTTP (`http`), or the engine in this process (`local`).

`wire` and `answer` know how a server is asked and answers, `server` how one is doing. `library` is what is used of
vLLM in this process, `guard` what keeps its core from outliving us. Import `http` or `local` and not this package's
parts together: the one needs an HTTP client, the other vLLM itself.
"""
