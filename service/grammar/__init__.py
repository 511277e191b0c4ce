"""Grammars: which schemas, regexes and Lark grammars can be enforced, how an engine is told, what matches them.

Pure, and bounded: no schema, pattern or text makes it run for long.
Never which of them a request asks for: that is `api.tools`.
"""
