"""The rules that must always hold: each is a checker that watches a run."""
