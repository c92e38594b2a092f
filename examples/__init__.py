"""What people build with the layers. Each file is whole and says what its model has learned."""
