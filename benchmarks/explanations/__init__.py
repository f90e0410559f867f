"""Whether the monitors of what moved name the right cause, stay silent where nothing moved, and cost little."""
