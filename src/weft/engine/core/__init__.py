"""What every kernel is built from: compiling, machine-level operations, draws, rows, statistics."""
