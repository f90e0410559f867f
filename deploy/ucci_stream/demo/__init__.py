"""`ucci-stream demo`: what happens when, what is watched, and the verdict."""
