"""Stores of ospltool and of OpenSplice, opened, verified, compared, copied."""
