"""What records mean: templates, fields, names of nodes, exchanges between them."""
