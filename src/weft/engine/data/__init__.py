"""Memberships: synthetic ones, the grid, universes, and the laws that real ones follow."""
