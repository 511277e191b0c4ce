"""Models that don't speak Harmony: prompts by their chat template, and what reads the markup that they write.

Never name a server's kind here: an engine says of a model how it speaks. docs/models.md is its page.
"""
