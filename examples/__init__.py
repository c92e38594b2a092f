"""Programs with the layers. Each file is complete and prints what its model has learned."""
