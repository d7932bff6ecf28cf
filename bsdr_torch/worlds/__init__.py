"""The worlds people act in."""
