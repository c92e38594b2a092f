import opennmt

model = lambda: opennmt.models.Transformer(
    num_layers=(2, 1), num_units=14, num_heads=2, ffn_inner_dim=29, pre_norm=False,
    share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL, output_layer_bias=False,
)
