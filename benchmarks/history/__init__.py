"""What history costs: verifying, storing durably, reading again, and surviving kill -9."""
