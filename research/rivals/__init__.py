"""Rivals, each with its own small grid chosen on other seeds than those reported, beside today's service."""
