"""The whole stack on one machine: broker, model servers, services as processes."""
