"""Reads what a model samples, mark by mark: one parser for all markups, and a reader for each form of a call.

No stream of tokens makes them raise, and none takes them more than linear time.
Never which model writes which markup: that is `markup.families`.
"""
