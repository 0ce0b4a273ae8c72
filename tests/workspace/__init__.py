"""Real runs whose changes are shown, applied, undone and discarded."""
