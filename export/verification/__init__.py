"""Does a SavedModel serve? Its graph, its answers, and what they are compared with."""
