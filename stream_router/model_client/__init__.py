"""Calls of model servers: what is asked, what comes back, how sure it is, and how healthy the server is."""
