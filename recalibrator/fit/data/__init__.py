"""What the fold keeps of its observations: labels as a table, decayed sums, the current traffic."""
