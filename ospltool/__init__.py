"""The operations console and forensic tools around the durability service."""
