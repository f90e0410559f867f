"""Label tools attached: requests out as tasks, annotations back as feedback."""
