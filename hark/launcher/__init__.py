"""Compiles a LaunchPlan (pure) and talks to hark-launch, which carries it out."""
