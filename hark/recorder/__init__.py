"""Merges all streams into one attributed timeline and writes it."""
