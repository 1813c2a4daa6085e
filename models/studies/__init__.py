"""Documents of studies: plans, goodput, curves, benchmarks, recorded runs."""
