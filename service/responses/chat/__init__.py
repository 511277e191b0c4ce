"""Prompts that a model's own chat template makes, and what such a model has read of a conversation.

For models that don't speak Harmony. Never how they write: that is service/markup/.
"""
