"""What stopping small calls early saves and costs, alone and with a handoff, on live runs of the demo's models."""
