"""The browser that gpt-oss was trained with: pages as texts with numbered lines and links, and what is cited of them.

Its displays are the model's only sight of a page, so their form is fixed by its training. Never any I/O, and never a
word of a page taken for more than text: what is fetched, and from where, is `service/search/`'s and its caller's.
"""
