"""From the data to curves: what each model gets right at each u, with its error bars."""
