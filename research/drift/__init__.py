"""The drift benchmark: streams with a known oracle flow in, what each policy held and what it cost flows out."""
