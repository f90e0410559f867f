"""The headline of a workload: cause, since when, effect on answers, and what to do; for page, CLI and notices."""
