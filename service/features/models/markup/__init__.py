"""The markups of models that know no Harmony: reasoning, answers and calls between marks of their own.

Pure: ids and text in, segments out, the same as Harmony's. No stream of tokens makes a parser raise, and none takes it
more than linear time. Never which engine sampled them, and never items or events.
"""
