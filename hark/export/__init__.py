"""What other tools read: forms of a bundle that are not hark's own."""
