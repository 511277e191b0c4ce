"""Grammars: schemas, regexes and Lark grammars that can be enforced, their form for an engine, and their checks.

Pure, and bounded: no schema, pattern or text makes it run for long.
Never the choice of one for a request: `api.tools` makes it.
"""
