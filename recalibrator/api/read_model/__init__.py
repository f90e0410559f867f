"""What the topics say, kept for requests: state by workload, documents, points over time."""
