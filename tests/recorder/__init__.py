"""Tests of hark/recorder."""
