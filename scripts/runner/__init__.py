"""The parts of `scripts/test` and `scripts/check`."""
