"""The calibration in force and the one on trial, from their topics."""
