"""Outcomes to one transaction a tick: which offsets are done, and what happens to the rest."""
