"""Which writers and readers of a running system can not be eventually consistent, and why."""
