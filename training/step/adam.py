"""Adam on the gradient of the whole batch, in one pass over the weights."""

import keras
import tensorflow as tf


class Adam(keras.optimizers.Adam):
    """`keras.optimizers.Adam` (Kingma and Ba 2015) in one pass over the weights; no `amsgrad`.

    It differs from Keras in three ways:

    - Under a `tf.distribute` strategy, Keras sums gradients over the replicas after clipping, so
      clipping sees the gradient of one replica only. Here the gradients are already summed
      (`training.step.parallel`).
    - The sparse gradient of an embedding has two rows for a token that occurs twice. Keras squares
      these rows separately. Here the gradient is made dense first, with the rows added.
    - Keras's update reads and writes weights and moments a dozen times, which takes a tenth of a
      training step on a CPU. TensorFlow has the same update as one operation. (Weight decay is
      Keras's and needs one more pass.)
    """

    def apply(self, grads, trainable_variables=None):
        super().apply([tf.convert_to_tensor(grad) for grad in grads], trainable_variables)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations + 1, variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=self.beta_1**step,
            beta2_power=self.beta_2**step,
            lr=tf.cast(learning_rate, variable.dtype),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.cast(gradient, variable.dtype),
        )
