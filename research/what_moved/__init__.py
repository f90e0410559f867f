"""Whether what moved is named: known causes on texts that others wrote, and pairs of samples where nothing moved."""
