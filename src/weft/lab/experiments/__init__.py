"""The experiments, each in one file: its points, its simulation, what is measured, the picture, and
the claim with the reasons of its bounds."""
