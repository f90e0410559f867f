"""The router's decisions and bookkeeping: pure, no I/O, no clock, no chance."""
