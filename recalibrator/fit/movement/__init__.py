"""What moved: cheap monitors of what queries are like, beside the detectors that decide; none moves a threshold."""
