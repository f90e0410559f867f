"""The threshold, whether to publish it, and an optional proof."""
