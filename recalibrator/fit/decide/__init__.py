"""The threshold, and whether to publish it."""
