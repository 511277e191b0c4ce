"""What the tests of markups share: a vocabulary, and streams of sampled tokens."""
