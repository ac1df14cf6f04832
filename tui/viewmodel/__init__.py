"""What the screens show, computed from the model and a moment. No Textual in here."""
