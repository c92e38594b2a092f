import opennmt
import tensorflow as tf

model = lambda: opennmt.models.Transformer(
    num_layers=1, num_units=18, num_heads=3, ffn_inner_dim=13,
    ffn_activation=tf.nn.gelu, mha_bias=False,
)
