"""Augmentations: what they change, what they leave, and that a seed repeats them."""

from functools import partial

import pytest

torch = pytest.importorskip("torch")

from consilience import InvalidInputError  # noqa: E402
from consilience.nn import augment_images, augment_rows  # noqa: E402
from consilience.nn.augment import as_augmentation  # noqa: E402

STILL = partial(augment_images, flip=False, degrees=0.0, shift=0.0, colour=0.0)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(6, 3, 8, 8), (6, 1, 8, 12), (6, 8, 8)])
def test_images_keep_shape_and_range_and_a_seed_repeats_them(shape):
    images = torch.rand(shape, generator=seeded(1)) * 3 - 1
    before = images.clone()
    once = augment_images(images, seeded())
    assert once.shape == images.shape
    assert torch.equal(images, before)
    flat, own = once.flatten(1), images.flatten(1)
    assert (flat.amin(1) >= own.amin(1) - 1e-6).all()
    assert (flat.amax(1) <= own.amax(1) + 1e-6).all()
    assert (once - images).abs().mean() > 0.01
    assert torch.equal(once, augment_images(images, seeded()))
    assert not torch.equal(once, augment_images(images, seeded(5)))
    state = torch.random.get_rng_state()
    augment_images(images, seeded())
    assert torch.equal(state, torch.random.get_rng_state())


def test_without_changes_images_stay():
    images = torch.rand(4, 3, 7, 9, generator=seeded())
    torch.testing.assert_close(STILL(images, seeded()), images)


def test_flips_mirror_about_half_of_the_images_and_only_colour_ones_by_default():
    images = torch.rand(200, 3, 4, 6, generator=seeded())
    same = partial(augment_images, degrees=0.0, shift=0.0, colour=0.0)
    out = same(images, seeded())
    mirrored = (out - images.flip(3)).abs().amax(dim=(1, 2, 3)) < 1e-4
    kept = (out - images).abs().amax(dim=(1, 2, 3)) < 1e-4
    assert (mirrored ^ kept).all()
    assert 70 < mirrored.sum() < 130
    grey = images[:, :1]
    torch.testing.assert_close(same(grey, seeded()), grey)


def test_a_turn_keeps_angles_in_oblong_images():
    # a point at a quarter of the height above the centre comes to the same distance beside it
    images = torch.zeros(1, 1, 41, 81)
    images[0, 0, 9:12, 39:42] = 1.0
    turned = 0.0
    for seed in range(40):
        out = augment_images(images, seeded(seed), flip=False, degrees=95.0, shift=0.0, colour=0.0)[0, 0]
        where = (out * out).nonzero().float()
        offset = where.mean(dim=0) - torch.tensor([20.0, 40.0])
        assert offset.norm() == pytest.approx(10.0, abs=0.7)
        turned = max(turned, float(offset[1].abs()))
    assert turned > 9.0


def test_rows_get_noise_in_units_of_their_features_and_lose_some_values():
    rows = torch.randn(4000, 2, generator=seeded(3)) * torch.tensor([1.0, 100.0]) + 5.0
    noisy = augment_rows(rows, seeded(), noise=0.5, dropout=0.0)
    torch.testing.assert_close(
        (noisy - rows).std(dim=0) / rows.std(dim=0), torch.full((2,), 0.5), rtol=0.1, atol=0
    )
    dropped = augment_rows(rows, seeded(), noise=0.0, dropout=0.3)
    gone = dropped != rows
    assert gone.float().mean() == pytest.approx(0.3, abs=0.03)
    torch.testing.assert_close(dropped[gone], rows.mean(dim=0).expand_as(rows)[gone])
    assert torch.equal(augment_rows(rows, seeded()), augment_rows(rows, seeded()))


@pytest.mark.parametrize(
    ("augment", "batch", "message"),
    [
        (augment_images, torch.rand(3, 4), r"shape \(3, 4\).*augment='rows'"),
        (augment_rows, torch.ones(3, 4, dtype=torch.int64), "expected floats"),
        (partial(augment_rows, dropout=2.0), torch.rand(3, 4), "dropout=2.0 must be at most 1"),
        (partial(augment_images, degrees=-1), torch.rand(3, 4, 4), "degrees=-1 must be"),
    ],
)
def test_what_cannot_be_augmented_is_refused(augment, batch, message):
    with pytest.raises(InvalidInputError, match=message):
        augment(batch, seeded())


def test_augmentations_have_names():
    with pytest.raises(InvalidInputError, match="augment='image' is unknown; use 'images', 'rows'"):
        as_augmentation("image")
    assert as_augmentation(None) is None
    assert as_augmentation("rows") is augment_rows
