"""llama.cpp behind the engine's port: its server over HTTP.

`servers` is the kind, `wire` and `answer` know how such a server is asked and answers, `grammar` how it is constrained,
`missing` finds the ids that its streams leave out. As measured on builds b11669 and 2026.10.
"""
