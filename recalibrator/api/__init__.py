"""The HTTP API: takes feedback and commands, and serves status, versions and the page.

Feedback and commands become records, answered only after the broker has acknowledged them. What is served comes from
the compacted topics, so that the stage holds no state of its own and any replica gives the same answers.
"""
