"""Examples, summaries and commands in; calibration versions out: a pure fold over one log, and its loop."""
