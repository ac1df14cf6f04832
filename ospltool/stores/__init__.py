"""Stores of ospltool and of OpenSplice: opened, verified, compared and copied."""
