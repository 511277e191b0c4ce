"""vLLM behind the engine's port: its servers over HTTP (`servers`), or the engine in this process (`local`).

`wire` and `answer` know how a server is asked and answers. `library` is our part of vLLM in this process, and `guard`
keeps its core from outliving us. Import `servers` or `local` and not this package's parts together: the one needs
an HTTP client, the other vLLM itself.
"""
