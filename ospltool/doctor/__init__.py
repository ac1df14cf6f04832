"""Which writers and readers of a running system cannot be eventually consistent, and why."""
