"""What the pipeline costs, against other ways to the same answer and against its goals."""
