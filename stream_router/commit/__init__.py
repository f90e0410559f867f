"""Outcomes to one transaction a tick: which offsets are done, and what becomes of the rest."""
