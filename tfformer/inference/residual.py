"""The inference layer of the residual connection."""

from tfformer.layers import residual


class Residual:
    """LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)), without dropout."""

    def __init__(self, layer, name, fusing):
        self.norm_first, self.adds = layer.norm == "pre", layer.residual
        self.layer_norm = fusing.inference_layer(layer.layer_norm, f"{name}/layer_norm")

    def __call__(self, weights, x, sublayer):
        """Rows [R, D] -> [R, D]; `sublayer` is a function of rows."""
        found = sublayer(self.layer_norm(weights, x) if self.norm_first else x)
        if self.adds:
            found = x + found
        return found if self.norm_first else self.layer_norm(weights, found)


INFERENCE_LAYERS = {residual.Residual: Residual}
