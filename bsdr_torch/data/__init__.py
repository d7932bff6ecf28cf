"""Rollouts of people, and the DataModules that serve them."""
