"""The checks: one question each, as pure functions from what was read or measured to findings and skips."""
