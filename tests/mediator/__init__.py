"""Tests of the mediator: the real program between real clients and scripted servers."""
