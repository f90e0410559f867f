"""Two tiny real models, what they once answered, and a server that speaks vLLM's protocol."""
