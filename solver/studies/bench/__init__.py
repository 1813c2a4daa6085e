"""Many instances: engines that run calls in watched processes, and benchmark runs over them."""
