"""The twin of the residual connection."""

from tfformer.layers import residual


class Residual:
    """LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)); nothing is dropped here."""

    def __init__(self, layer, name, fusing):
        self.norm_first = layer.norm == "pre"
        self.layer_norm = fusing.twin(layer.layer_norm, f"{name}/layer_norm")

    def __call__(self, weights, x, sublayer):
        """Rows [R, D] -> [R, D]; `sublayer` is a function of rows."""
        if self.norm_first:
            return x + sublayer(self.layer_norm(weights, x))
        return self.layer_norm(weights, x + sublayer(x))


TWINS = {residual.Residual: Residual}
