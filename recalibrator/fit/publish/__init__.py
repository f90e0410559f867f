"""Versions, trials and operators' commands, from the estimate to the topic."""
