"""Models of other systems, read without those systems: each file is one noun of a reader."""
