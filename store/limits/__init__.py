"""The limits of a tenant in Redis: how fast, how much and how many at once, reserved before the work and settled after.

Never decide here who is limited, nor the words of a refusal.
"""
