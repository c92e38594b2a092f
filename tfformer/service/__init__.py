"""What a model answers: signatures from text to text, and the translator that has them."""
