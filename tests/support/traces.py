"""What TensorFlow notes of a graph that is traced, for processes of tests."""


def share_one_stack():
    """Operations of graphs share one stack, in place of the lines that made each.

    To walk the stack at each of them takes a tenth of the processor time of a test that traces
    much. But an error of a graph names other lines than those that made the operation: to see
    them, take the call of this function away.
    """
    from tensorflow.python.util import tf_stack

    stack = tf_stack.extract_stack()
    tf_stack.extract_stack = lambda stacklevel=1: stack
