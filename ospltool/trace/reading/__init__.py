"""From files to records: every byte of a file belongs to one record."""
