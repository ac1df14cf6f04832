"""What the live model shows to be wrong now: one module for each kind of subject, pure functions all."""
