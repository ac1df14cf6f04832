"""What every service process stands on: taps, who is in the domain, delivery, and its mailbox."""
