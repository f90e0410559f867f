"""The join: matches results with late feedback into labelled examples, sums up traffic, and asks for labels."""
