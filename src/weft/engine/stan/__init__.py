"""StaN over arrays: views, weights, the rounds' kernel, fitness of the overlays."""
