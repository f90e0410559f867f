"""How much longer a caller waits through the gateway than at the model server itself, and what the wait is spent on."""
