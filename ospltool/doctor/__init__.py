"""The diagnosis of readers and writers that cannot become consistent."""
