"""The broker as the services see it: records, transactions, dead letters, errors, and Kafka's clients behind them."""
