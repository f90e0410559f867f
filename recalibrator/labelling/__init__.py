"""What people are asked to label next, and how annotations become feedback."""
