"""What a weft peer costs: `./weft bench peer`.

Each measure is one small module with a `measure(quick) -> dict`; `main` runs them and prints
one JSON object or a table. Machines are shared and noisy, so every figure is CPU time or a ratio
where that is possible, and stands beside a reference taken in the same run (`reference`).
`docs/benchmarks.md` says what is measured and how to read it.
"""
