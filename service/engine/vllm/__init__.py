"""vLLM behind the engine's port: servers over HTTP (`http`), or the engine in this process (`local`).

`wire` knows how a server is asked and answers, `server` how one is doing, and neither knows the port's generators.
Import `http` or `local` and not this package's parts together: the one needs an HTTP client, the other vLLM itself.
"""
