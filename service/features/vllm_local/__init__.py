"""vLLM in this process, on a GPU of this machine.

Never imported where another engine is wanted: vLLM takes a minute and gigabytes. docs/engines.md is its page.
"""
