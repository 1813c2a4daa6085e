"""Many runs of the library: plans, curves, goodput, benchmarks, recorded runs."""
