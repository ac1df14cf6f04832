"""One module per screen; each shows a view and owns no data."""
