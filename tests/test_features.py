from __future__ import annotations

import pytest
import torch

from bsdr_torch.features import FixedFeatures, make_features


def test_fixed_features_are_those_of_the_world() -> None:
    table = torch.rand(5, 3)
    features = make_features("fixed", (3,), width=99, hidden=99)
    assert features.width == 3
    assert torch.equal(features(table), table)


def test_features_of_the_wrong_width_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"expected features of width 3, got a tensor of shape \(5, 2\)"):
        FixedFeatures(3)(torch.zeros(5, 2))


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_learned_features_have_their_width_and_a_constant(kind: str) -> None:
    features = make_features(kind, (4, 5, 5), width=6, hidden=8)  # type: ignore[arg-type]  # one of the two
    phi = features(torch.rand(7, 4, 5, 5))
    assert phi.shape == (7, 6)
    assert bool((phi[:, -1] == 1).all())
    assert float(phi[:, :-1].std(0).min()) > 0


def test_bad_settings_are_refused_with_a_reason() -> None:
    with pytest.raises(ValueError, match="choose fixed, mlp or cnn"):
        make_features("transformer", (3,), 4, 4)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match="use features=mlp"):
        make_features("cnn", (3,), 4, 4)
    with pytest.raises(ValueError, match="width >= 2"):
        make_features("mlp", (3,), 1, 4)
