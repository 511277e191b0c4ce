"""How a request finds its endpoint, and which query it may have."""
