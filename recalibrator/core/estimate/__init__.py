"""Counts → curves: what each model's answer is worth at each u now, with standard errors; the map g."""
