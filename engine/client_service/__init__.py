"""The node's side of durability clients (deployment guide, 5.5.23 and 5.5.24)."""
