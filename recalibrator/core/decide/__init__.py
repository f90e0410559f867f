"""Curves → decisions: the threshold, whether to publish it, and whether the world has changed."""
