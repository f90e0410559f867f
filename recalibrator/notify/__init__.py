"""Notifications: state changes of workloads → webhooks, signed, retried, each once."""
