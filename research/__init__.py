"""Speed and quality as figures: one question a module, ratios against a baseline in the same run."""
