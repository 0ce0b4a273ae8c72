"""Attacks from inside a run, each with a control that works outside."""
