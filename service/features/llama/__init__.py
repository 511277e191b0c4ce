"""llama.cpp behind the engine's port: its server over HTTP.

`servers` is the kind: how such a server is asked, how it answers, and which ids its streams leave out. `grammar` is how
it is constrained. As measured on builds b11669 and 2026.10. docs/engines.md is its page.
"""
