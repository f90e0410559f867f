"""Demo model servers: two tiny real checkpoints behind vLLM's protocol, on one CPU core each.

A request comes in by HTTP; known prompts are answered from the memo of recorded outputs, all others by a real
forward pass; both leave through the same protocol code. Meant for demos and tests: only a run against vLLM shows
that something works with vLLM.
"""

#: The prompt that both checkpoints were trained on (paper, appendix B).
PROMPT = """Extract entities from this photo search query.
Return JSON with fields: camera, lens,
aperture, shutter_speed, iso, focal_length.

Query: {text}
Output:"""
