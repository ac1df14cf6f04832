"""A cluster of runtimes in one thread under virtual time, with faults and checkers."""
