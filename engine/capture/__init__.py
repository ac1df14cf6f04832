"""The common parts of service processes: shell and mailbox, taps, the view of the domain, and delivery."""
