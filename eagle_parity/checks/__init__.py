"""The checks: one question each, as pure functions from what was read or measured to findings and skips.

``of_configs`` lists those of ``check-config``, ``of_comparisons`` those of ``diff-captures``, ``catalogue`` all of
them: adding one is one file and one line. They are apart because ``check-config`` must start without the others.
"""
