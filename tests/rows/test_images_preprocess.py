"""How a model wants its images."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.exceptions import InvalidInputError
from consilience.rows.images import ImagePreprocess

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)
SIZES = [(40, 60), (61, 33), (50, 50), (37, 90), (30, 47)]
IMAGES = [RNG.integers(0, 256, (*size, 3)).astype(np.uint8) for size in SIZES]


def resized(image: np.ndarray, height: int, width: int, how: Any = Image.Resampling.BILINEAR) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((width, height), how))


def test_the_shorter_side_is_resized_and_the_centre_cut_out() -> None:
    found = ImagePreprocess(20, resize_to=24, layout="hwc", dtype="uint8")(IMAGES)
    np.testing.assert_array_equal(found[0], resized(IMAGES[0], 24, 36)[2:22, 8:28])
    np.testing.assert_array_equal(found[1], resized(IMAGES[1], 44, 24)[12:32, 2:22])
    np.testing.assert_array_equal(found[2], resized(IMAGES[2], 24, 24)[2:22, 2:22])
    # 24 * 90 / 37 = 58.4 and 24 * 47 / 30 = 37.6 are cut to whole pixels
    np.testing.assert_array_equal(found[3], resized(IMAGES[3], 24, 58)[2:22, 19:39])
    np.testing.assert_array_equal(found[4], resized(IMAGES[4], 24, 37)[2:22, 8:28])


def test_squashed_images_lose_their_aspect_ratio() -> None:
    found = ImagePreprocess(
        (20, 30), "squash", interpolation="bicubic", layout="hwc", dtype="uint8", resize_to=(22, 34)
    )(IMAGES)
    for image, got in zip(IMAGES, found, strict=True):
        np.testing.assert_array_equal(got, resized(image, 22, 34, Image.Resampling.BICUBIC)[1:21, 2:32])


def test_pixels_become_numbers() -> None:
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.4, 0.3)
    found = ImagePreprocess(50, mean=mean, std=std)(IMAGES[2:3])
    expected = (IMAGES[2] / 255 - np.array(mean)) / np.array(std)
    assert (found.shape, found.dtype) == ((1, 3, 50, 50), np.float32)
    for dtype in ("float16", "float64", "uint8"):
        assert ImagePreprocess(8, dtype=dtype)(IMAGES).dtype == dtype
    np.testing.assert_allclose(found[0], expected.transpose(2, 0, 1), atol=1e-6)
    whole = ImagePreprocess(50, scale=1.0, mean=(104.0, 117.0, 124.0), colour="bgr", layout="hwc")
    np.testing.assert_allclose(whole(IMAGES[2:3])[0], IMAGES[2][..., ::-1] - np.array([104, 117, 124.0]))


def test_every_kind_of_rows_gives_the_same(tmp_path: Path) -> None:
    prepare = ImagePreprocess(16, mean=0.5)
    paths = []
    for i, image in enumerate(IMAGES):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(image).save(paths[-1])
    expected = prepare(IMAGES)
    for X in (tuple(IMAGES), paths, [Image.fromarray(image) for image in IMAGES], [paths[0], *IMAGES[1:]]):
        np.testing.assert_array_equal(prepare(X), expected)
    one = np.stack([IMAGES[2], IMAGES[2][::-1]])
    np.testing.assert_array_equal(prepare(one), prepare(list(one)))
    assert prepare(np.empty((0, 5, 5, 3), np.uint8)).shape == (0, 3, 16, 16)
    assert prepare([]).shape == (0, 3, 16, 16)


def test_grey_images_and_transparency() -> None:
    grey = IMAGES[2][..., 0]
    colours = ImagePreprocess(50, dtype="uint8")
    for image in (grey, grey[..., None]):
        np.testing.assert_array_equal(colours([image])[0], np.stack([grey] * 3))
    clear = np.concatenate([IMAGES[2], np.full((50, 50, 1), 7, np.uint8)], axis=2)
    np.testing.assert_array_equal(colours([clear]), colours([IMAGES[2]]))
    one = ImagePreprocess(50, colour="grey", dtype="uint8", layout="hwc")
    assert one([IMAGES[2]]).shape == (1, 50, 50, 1)
    np.testing.assert_array_equal(
        one([IMAGES[2]])[0, ..., 0], np.asarray(Image.fromarray(IMAGES[2]).convert("L"))
    )
    np.testing.assert_array_equal(one([grey])[0, ..., 0], grey)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([IMAGES[0], IMAGES[1] / 255], "X has float64 in row 1; the pixels of an image are uint8"),
        ([IMAGES[0], IMAGES[1].transpose(2, 0, 1)], r"shape \(3, 61, 33\) in row 1; .* np.moveaxis"),
        ([IMAGES[0], np.zeros(4, np.uint8)], r"shape \(4,\) in row 1; expected \(height, width, 3\)"),
        ([IMAGES[0], np.zeros((0, 4, 3), np.uint8)], r"shape \(0, 4, 3\) in row 1"),
        ([IMAGES[0], "a.png"], r"X has a text in row 1, .* Give paths as pathlib.Path"),
        ("a.png", "X is a single text; give a list"),
    ],
)
def test_what_is_no_image_is_refused(X: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ImagePreprocess(8)(X)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 0}, "size=0 must be a whole number of at least 1"),
        ({"size": 10**6}, "size=1000000 must be a whole number of at most 4096"),
        ({"size": (1, 2, 3)}, "must be one number, or height and width"),
        ({"size": 8, "resize_to": 7}, "resize_to=7 must be at least the size"),
        ({"size": 8, "resize": "pad"}, "resize='pad' is unknown"),
        ({"size": 8, "interpolation": "cubic"}, "Did you mean 'bicubic'"),
        ({"size": 8, "mean": (1, 2)}, "mean=.* must be one number, or 3: one for each channel"),
        ({"size": 8, "colour": "grey", "mean": (1, 2, 3)}, "must be one number, or 1"),
        ({"size": 8, "std": 0}, "std=0 must be a finite number above 0"),
        ({"size": 8, "scale": float("nan")}, "scale=nan must be a finite number"),
        ({"size": 8, "dtype": "uint8", "mean": 0.5}, "dtype='uint8' keeps pixels as they are"),
        ({"size": 8, "dtype": "int8"}, "dtype='int8' is unknown"),
        ({"size": 8, "layout": "HWC"}, "Did you mean 'hwc'"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ImagePreprocess(**given)


def test_it_survives_a_card() -> None:
    prepare = ImagePreprocess((20, 30), "squash", 40, "bicubic", mean=[0.1, 0.2, 0.3], std=0.5, colour="bgr")
    text = json.dumps(prepare.to_dict())
    assert ImagePreprocess.from_dict(json.loads(text)) == prepare
    assert hash(ImagePreprocess.from_dict(json.loads(text))) == hash(prepare)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "must be an object with size, resize.*this one lacks 'size'"),
        ({"size": 8, "pad": 1}, "must be an object with size, resize.*has the unknown key 'pad'"),
        (3, "must be an object"),
    ],
)
def test_a_card_that_says_something_else_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ImagePreprocess.from_dict(given)


@pytest.mark.parametrize(
    ("name", "options", "prepare"),
    [
        (
            "ViTImageProcessorPil",
            {"size": {"height": 32, "width": 24}},
            ImagePreprocess((32, 24), "squash", mean=0.5, std=0.5),
        ),
        (
            "CLIPImageProcessorPil",
            {
                "size": {"shortest_edge": 40},
                "crop_size": {"height": 32, "width": 32},
                "image_mean": [0.5, 0.4, 0.3],
                "image_std": [0.2, 0.3, 0.4],
            },
            ImagePreprocess(
                32, resize_to=40, interpolation="bicubic", mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)
            ),
        ),
    ],
)
def test_as_processors_of_transformers_do_it(name: str, options: dict[str, Any], prepare: Any) -> None:
    transformers = pytest.importorskip("transformers")
    processor = getattr(transformers, name)(**options)
    expected = np.stack([processor(image, return_tensors="np")["pixel_values"][0] for image in IMAGES])
    np.testing.assert_allclose(prepare(IMAGES), expected, atol=1e-6)
