"""Forms of a bundle that other tools read."""
