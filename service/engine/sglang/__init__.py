"""SGLang behind the engine's port: its servers over HTTP.

`servers` is the kind, `wire` and `answer` know how such a server is asked and answers. Read in the source of SGLang
0.5.23: no real one was ever asked, so tests hold what is said here against a stand-in alone.
"""
