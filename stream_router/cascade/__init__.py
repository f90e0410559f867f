"""One query: small model, decision, large model where it is called for."""
