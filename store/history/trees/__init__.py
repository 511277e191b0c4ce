"""What a tenant has: its trees by their last use, and the turns of one.

It is for people who look into a store. Never note a use here, and never change anything.
"""
