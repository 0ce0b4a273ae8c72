"""What an agent changed in its workspace, and the ways to take it over, back, or away."""
