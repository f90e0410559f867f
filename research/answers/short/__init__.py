"""The judge of short streams: one drift after 6,000 clean queries, and how soon a policy is on target again."""
