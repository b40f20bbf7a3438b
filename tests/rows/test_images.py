"""Images as rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.rows.rows import check_source

from consilience.exceptions import InvalidInputError
from consilience.rows.files import open_files

Image = pytest.importorskip("PIL.Image")
COLOURS = np.random.default_rng(0).integers(0, 255, (5, 6, 7, 3)).astype(np.uint8)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 2)


def save(folder: Path, images: Any, mode: str | None = None) -> Path:
    for i, values in enumerate(images):
        image = Image.fromarray(values)
        (image if mode is None else image.convert(mode)).save(folder / f"{i}.png")
    return folder


@pytest.mark.parametrize(("images", "mode"), [(COLOURS, None), (COLOURS[..., 0], None), (COLOURS, "RGBA")])
def test_images_in_the_order_of_their_names(images: Any, mode: str | None, tmp_path: Path) -> None:
    check_source(open_files(save(tmp_path, images, mode)), images)


def test_palettes_and_grey_images_among_others_become_colours(tmp_path: Path) -> None:
    save(tmp_path, COLOURS)
    Image.fromarray(COLOURS[2]).convert("P").save(tmp_path / "2.png")
    Image.fromarray(COLOURS[3, ..., 0]).save(tmp_path / "3.png")
    found = open_files(tmp_path)
    assert found.shape == (5, 6, 7, 3)
    np.testing.assert_array_equal(found.all(None)[3], np.repeat(COLOURS[3, ..., :1], 3, axis=2))
    np.testing.assert_array_equal(
        found.all(None)[2], np.asarray(Image.open(tmp_path / "2.png").convert("RGB"))
    )


def test_images_of_several_sizes_are_a_list(tmp_path: Path) -> None:
    images = [COLOURS[0], COLOURS[1, :3], COLOURS[2, :, :4], COLOURS[3], COLOURS[4, :2, :2]]
    found = open_files(save(tmp_path, images))
    assert found.shape == (5,)
    assert found.n_bytes == sum(image.size for image in images)
    assert found.borders.tolist() == [0, 2, 4, 5]
    for got in (found.all(None), [row for block in found.blocks() for row in block.X], found.head):
        for image, pixels in zip(images, got, strict=False):
            np.testing.assert_array_equal(pixels, image)
    np.testing.assert_array_equal(found.take(np.array([1, 4]))[1], images[4])


def test_blocks_of_several_sizes_are_cut_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consilience.rows.rows.BLOCK_ROWS", 128)
    monkeypatch.setattr("consilience.rows.files.BLOCK_BYTES", 300)
    images = [COLOURS[0], COLOURS[1, :3], COLOURS[2, :, :4], COLOURS[3], np.zeros((20, 20, 3), np.uint8)]
    assert [image.size for image in images] == [126, 63, 72, 126, 1200]
    # the fourth begins within 300 bytes
    assert open_files(save(tmp_path, images)).borders.tolist() == [0, 4, 5]


def test_a_photo_that_a_camera_stored_on_its_side_is_turned(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6  # turn it by 90 degrees to the right
    Image.fromarray(COLOURS[0]).save(tmp_path / "0.jpg", exif=exif, quality=95)
    plain = np.asarray(Image.open(tmp_path / "0.jpg"))
    found = open_files(tmp_path)
    assert found.shape == (1, 7, 6, 3)
    np.testing.assert_array_equal(found.all(None)[0], np.rot90(plain, -1))


def test_a_file_that_changes_its_size_is_named(tmp_path: Path) -> None:
    found = open_files(save(tmp_path, COLOURS))
    Image.fromarray(COLOURS[0, :3]).save(tmp_path / "3.png")
    with pytest.raises(InvalidInputError, match=r"3.png is 7 x 3, and was 7 x 6 when it was first opened"):
        found.all(None)


@pytest.mark.parametrize(
    ("number", "message"),
    [(0, ""), (4, ""), (3, "An image has more than 8 bits")],
    ids=["first", "last", "deep"],
)
def test_a_broken_image_is_named(number: int, message: str, tmp_path: Path) -> None:
    path = save(tmp_path, COLOURS) / f"{number}.png"
    path.write_bytes(path.read_bytes()[:60])
    if message:
        Image.fromarray((np.arange(42).reshape(6, 7) * 1500).astype(np.uint16)).save(path)
    with pytest.raises(InvalidInputError, match=f"X: .*{number}.png cannot be read: {message}"):
        open_files(tmp_path).all(None)
