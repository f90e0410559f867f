"""Everything of the recalibrator that touches Kafka, files, HTTP or the clock."""
