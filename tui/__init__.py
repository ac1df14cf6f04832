"""The Textual console: screens, widgets and a pure view model."""

import os

os.environ.setdefault(
    "TEXTUAL_FPS", "120"
)  # a second frame, with what a key changes beside the cursor, comes soon
