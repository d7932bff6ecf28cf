"""Boltzmann State-Dependent Rationality: learn how people are irrational from watching them act."""
