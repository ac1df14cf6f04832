"""What every service process stands on: its shell and mailbox, taps, who is in the domain, and delivery."""
