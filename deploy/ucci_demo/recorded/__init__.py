"""What two real (tiny) models once answered, packed; see ``PROVENANCE.md``."""
