"""Deployment files that are made from the code, and the tools that build and check the others."""
