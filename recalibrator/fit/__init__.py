"""The fit: a pure fold of examples, summaries and commands into calibration versions, and the loop that runs it."""
