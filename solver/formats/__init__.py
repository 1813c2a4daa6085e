"""Readers of other programs' files: each returns an instance."""
