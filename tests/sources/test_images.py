"""Images as rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sources.rows import check_source

from consilience.exceptions import InvalidInputError
from consilience.sources import source
from consilience.sources.files import open_files

Image = pytest.importorskip("PIL.Image")
COLOURS = np.random.default_rng(0).integers(0, 255, (5, 6, 7, 3)).astype(np.uint8)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BLOCK_ROWS", 2)


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
    np.testing.assert_array_equal(found.read_all()[3], np.repeat(COLOURS[3, ..., :1], 3, axis=2))
    np.testing.assert_array_equal(
        found.read_all()[2], np.asarray(Image.open(tmp_path / "2.png").convert("RGB"))
    )


def _deep() -> Any:
    return Image.fromarray((np.arange(42).reshape(6, 7) * 1500).astype(np.uint16))


@pytest.mark.parametrize(
    ("number", "image", "message"),
    [
        (3, lambda: Image.fromarray(COLOURS[0, :3]), "3.png is 7 x 3, and the first image 7 x 6. Bring all"),
        (4, _deep, "4.png cannot be read: it has more than 8 bits a pixel .I;16.. Save it as .npy"),
        (0, lambda: Image.fromarray(COLOURS[0, ..., 0]), "1.png .*has colours, and the first image is grey"),
    ],
)
def test_images_of_other_kinds_are_refused(number: int, image: Any, message: str, tmp_path: Path) -> None:
    save(tmp_path, COLOURS)
    image().save(tmp_path / f"{number}.png")
    with pytest.raises(InvalidInputError, match=message):
        open_files(tmp_path).read_all()


@pytest.mark.parametrize("number", [0, 4])
def test_a_broken_image_is_named(number: int, tmp_path: Path) -> None:
    path = save(tmp_path, COLOURS) / f"{number}.png"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(InvalidInputError, match=f"X: .*{number}.png cannot be read: "):
        open_files(tmp_path).read_all()
