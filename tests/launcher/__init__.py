"""Tests of the launcher; ``rig`` drives hark-launch alone."""
