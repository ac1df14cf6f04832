"""The Textual console: screens, each with its rows, and widgets."""

import os

os.environ.setdefault(
    "TEXTUAL_FPS", "120"
)  # a second frame, with what a key changes beside the cursor, comes soon
