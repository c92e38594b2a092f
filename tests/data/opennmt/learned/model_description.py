import opennmt

model = lambda: opennmt.models.Transformer(
    num_layers=1, num_units=12, num_heads=2, ffn_inner_dim=17,
    position_encoder_class=lambda: opennmt.layers.PositionEmbedder(maximum_position=61),
    share_embeddings=opennmt.models.EmbeddingsSharingLevel.TARGET,
)
