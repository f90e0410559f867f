"""The gateway: queries over HTTP in OpenAI's protocol, answered by the same cascade and written to the same results.

For callers who need an answer now. It promises less than the topic: a caller who gets 200 has a result that the broker
has acknowledged; whatever else happens, there may be a result or none.
"""
