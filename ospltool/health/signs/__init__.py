"""Signs of trouble in the live model: one module of pure functions for each kind of subject."""
