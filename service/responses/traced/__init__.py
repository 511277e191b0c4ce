"""The spans of one response where it is traced: what is said of it, its generations and the tools that it calls.

They stand around the engine and the tools, whose callers know nothing of them. Never used where a span isn't kept.
"""
