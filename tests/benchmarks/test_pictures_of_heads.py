"""What heads attend to is drawn as the model has it: a row sums to 1, the pieces are the texts'."""

import numpy as np
import tiny

from benchmarks.learning import heads


def test_a_row_of_pictures_for_each_run(tmp_path, monkeypatch):
    translator, drawn = tiny.translator_served(), []
    found = heads.attention(translator, "a little house", "the lake")
    weights, source, target = found
    assert weights.shape == (translator.model.config.num_heads, len(target), len(source))
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    assert "".join(source).replace("▁", " ").strip() == "a little house</s>"
    monkeypatch.setattr(
        "training.report.picture.write_picture", lambda path, figure: drawn.append(figure)
    )
    heads.draw(tmp_path / "heads.png", {"one": found, "two": found})
    axes = np.array(drawn[0].axes).reshape(2, 2)
    assert [ax.get_title() for ax in axes[:, 1]] == ["one: head 2", "two: head 2"]
    np.testing.assert_array_equal(axes[0, 1].images[0].get_array(), weights[1])
    assert [label.get_text() for label in axes[1, 0].get_yticklabels()] == target
