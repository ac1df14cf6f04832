"""The comparison of two or more stores, instance by instance, with likely causes."""
