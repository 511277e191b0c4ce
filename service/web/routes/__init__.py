"""The routes, one file for what belongs together: each reads its request, calls the rooms below, and answers.

A route shows in one screen what a request does.
Never a rule of the API: what a body means is read by `api`, what is made of it by `responses`.
"""
