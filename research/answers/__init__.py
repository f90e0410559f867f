"""The judge of real answers: recorded pools of two pairs of models, graded kinds of drift, and policies on streams."""
