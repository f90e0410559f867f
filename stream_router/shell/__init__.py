"""Where the router touches the world: Kafka, the model servers, HTTP."""
