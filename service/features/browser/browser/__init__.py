"""The browser that gpt-oss was trained with: pages as texts with numbered lines and links, and citations of them.

Its displays are the model's only sight of a page, so their form is fixed by its training. Never any I/O, and never a
word of a page taken for more than text: fetching, and its rules, are those of the search and of the caller.
"""
