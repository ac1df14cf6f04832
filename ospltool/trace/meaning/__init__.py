"""The meaning of records: templates, fields, names of nodes, exchanges between them."""
