"""Where sets live: memory and SQLite behind one small interface."""
