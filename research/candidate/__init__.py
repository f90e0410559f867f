"""A prototype core: one closed-form mixture over what changed and when, with a memory of known worlds."""
