"""Policies on streams of recorded queries that drift: who holds the target, and at what cost."""
