"""The check of configurations and deployments before a node starts with them."""
