"""Measurements of time and memory against named alternatives, made in the same run."""
