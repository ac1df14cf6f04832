"""The Textual console: screens, widgets and a pure view model."""
