"""Query records in: bytes to queries or faults, with flow control."""
