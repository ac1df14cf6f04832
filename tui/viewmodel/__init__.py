"""The contents of the screens, computed from the model and a moment, without Textual."""
