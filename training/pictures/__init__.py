"""Pictures of what a model does inside: what is drawn (`inside`), and how, a file a subject.

Every function here takes numbers and names, and gives a Matplotlib figure; `training.picture` draws
them all of a run.
"""
