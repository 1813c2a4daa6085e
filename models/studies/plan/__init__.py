"""Plans: the request, the cluster, the profile and the plan itself."""
