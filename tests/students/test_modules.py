"""VGG4: the layers of Table 8."""

import pytest

torch = pytest.importorskip("torch")

from consilience.exceptions import InvalidInputError  # noqa: E402
from consilience.students.modules import VGG4  # noqa: E402


@pytest.mark.parametrize(
    ("image", "widths", "inputs"),
    [
        ((1, 28, 28), [64, 128, 256, 512], 512 * 3 * 3),
        ((3, 32, 32), [32, 64, 128, 256], 256 * 4 * 4),
        ((3, 96, 96), [128, 256, 512, 1024], 1024),
    ],
)
def test_layers_are_those_of_the_paper(image, widths, inputs):
    module = VGG4(torch.Size(image).numel(), 7).eval()
    layers = [layer for layer in module.features if isinstance(layer, torch.nn.Conv2d)]
    assert [layer.out_channels for layer in layers] == widths
    strides = (2, 2) if image[1] == 96 else (1, 1)
    assert {(layer.kernel_size, layer.stride) for layer in layers} == {((5, 5), strides)}
    kinds = [type(layer) for layer in module.features]
    assert (kinds.count(torch.nn.BatchNorm2d), kinds.count(torch.nn.MaxPool2d)) == (4, 3)
    assert module.classify.in_features == inputs
    images = torch.rand(2, *image)
    logits = module(images)
    assert logits.shape == (2, 7)
    # rows of pixels are the same images
    torch.testing.assert_close(module(images.reshape(2, -1)), logits)


def test_other_sizes_are_refused():
    with pytest.raises(InvalidInputError, match=r"no layers for 64 values.*28 x 28 \(784\)"):
        VGG4(64, 10)


def test_images_with_channels_last_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"shape \(32, 32, 3\); expected \(3, 32, 32\)"):
        VGG4(3 * 32 * 32, 10)(torch.zeros(2, 32, 32, 3))
