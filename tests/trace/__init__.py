"""hark-trace, in runs and alone."""
