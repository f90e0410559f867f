"""Detectors of change, with labels and without, and what they say of when."""
