"""vLLM behind the engine's port: its servers over HTTP (`servers`), or the engine in this process (`local`).

`library` is our part of vLLM in this process, and `guard` keeps its core from outliving us. Never import vLLM itself
anywhere but in `library`, at the last moment.
"""
