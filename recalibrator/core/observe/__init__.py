"""Events → counts: who contributes to the estimates, in which cell of u, and when."""
