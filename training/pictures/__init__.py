"""Pictures of what happens inside a model: `inside` computes the data, the other files draw it.

Each drawing function takes numbers and names, and returns a Matplotlib figure. `training.picture`
draws all of them for a run.
"""
