"""What an operator does while the service runs: acts on versions over HTTP, dead letters, notifications."""
