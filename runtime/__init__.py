"""What both services run on: Kafka's clients, a transaction's states, records, dead letters, errors, log lines, time.

The modules here are pure but for :mod:`runtime.clock` and :mod:`runtime.log_lines`; all that talks to a broker
stands in :mod:`runtime.kafka`. Nothing here knows a service.
"""
