"""Stores of sets: memory and SQLite behind one small interface."""
