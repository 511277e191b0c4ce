"""Conversations with an id: holding one for a response that is made, and adding items to one by hand.

They are here together because both add a turn to what somebody else may want to add to.
Never ask the engine here, and never move a conversation but by store/history/conversations.py.
"""
