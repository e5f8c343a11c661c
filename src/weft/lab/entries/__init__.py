"""The experiments, one small file for each or for a family of them; each defines `ENTRIES`."""
