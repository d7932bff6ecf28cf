"""Predictors to compare with: the same interface as `HumanModel`, `action_log_probs(batch) -> [N, A]`."""
