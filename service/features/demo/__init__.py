"""The demo engine: a deterministic stand-in for gpt-oss, for machines without a GPU. README.md here explains it.

It reads real Harmony prompts and samples real tokens, so that every feature of the service can be tried.
Never a model, a clock, randomness or state: one prompt has one answer. docs/engines.md is its page.
"""
