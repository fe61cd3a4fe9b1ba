"""Real servers and what a capture says of them: ``make live-test``."""
