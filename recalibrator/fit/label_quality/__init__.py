"""Which labels count: suspicion, audits, quarantine, and what single labelers do differently."""
