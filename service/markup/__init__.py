"""How models that know no Harmony write their turns: reasoning, answers and calls between marks of their own.

Pure: ids and text in, segments out, the same as Harmony's. Never which engine sampled them, and never items or events.
"""
