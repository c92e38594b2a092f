"""From the options of `training.train`, typed or in a file, to a recipe."""
