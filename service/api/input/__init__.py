"""Input items, and histories that clients keep themselves: from their JSON to checked items.

Pure. A reader for each kind of item, and the form in which it is listed again.
Never how an item is shown to the model: that is `responses.prompt`.
"""
