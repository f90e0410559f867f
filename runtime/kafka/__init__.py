"""Kafka's clients: their properties, their calls bounded in time, their errors turned into what to do next."""
