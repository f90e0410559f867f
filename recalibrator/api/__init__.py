"""Feedback and commands in, status out: the HTTP stage. Stateless: all it shows comes from the compacted topics.

Requests flow in and become records that the broker has acknowledged before anybody is told so; what the topics say of
workloads, routers and versions flows out as JSON and as a page. Any replica gives the same answers.
"""
