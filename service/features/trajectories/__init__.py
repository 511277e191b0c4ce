"""Trajectories: conversations as trainers want them, with the exact ids of each prompt and answer, and histories of
other products as conversations of this one.

A number that isn't known is null here. Never guess an id: what no digest vouches for is left out, and said.
"""
