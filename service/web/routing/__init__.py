"""How a request finds its endpoint, which query it may have, and whether its client has the answer already."""
