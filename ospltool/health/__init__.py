"""The health of a live system: codes of trouble, signs of it, and incidents."""
