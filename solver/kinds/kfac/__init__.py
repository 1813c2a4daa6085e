"""K-FAC work in pipeline bubbles: PipeFisher's greedy, and its repaired version."""
