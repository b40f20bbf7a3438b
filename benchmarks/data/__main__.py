"""Make a data file of the benchmarks from images that you have.

Run from the root of the repository::

    python -m benchmarks.data cifar100 --from cifar-100-binary --to data
    python -m benchmarks.data cifar100 --from photos --network lite0.onnx resnet50.onnx --to data
    python -m benchmarks.data mnist --from mnist --to data
    python -m benchmarks.papers.unify --data cifar100 --data-dir data

FOLDER has CIFAR-100's binary files (train.bin, test.bin), MNIST's four files, or a folder of images for each
class, if you like within folders train and test. docs/evidence/data.md says how features are made.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.features import Network, extract, onnx_network, patches, pixels, torch_network
from benchmarks.data.images import Labelled, read_images, read_mnist
from benchmarks.papers.sources import DATA_VARIABLE
from consilience.exceptions import ConsilienceError
from consilience.files.disk import replacing

# what each file is called, and its views: the experiments of CIFAR-100 want features of two networks
FILES = {"cifar100": "cifar100_features.npz", "cub": "cub200_efflite0.npz", "mnist": "mnist.npz"}
VIEWS = {"cifar100": ("lite0_{}", "rn50_{}"), "cub": ("x_{}",)}
DEFAULTS: dict[str, tuple[Network, ...]] = {"cifar100": (patches, pixels), "cub": (patches,)}
COMPONENTS = 384


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = _parser()
    options = parser.parse_args(arguments)
    target = options.to / FILES[options.name]
    if target.exists():
        parser.error(f"{target} exists. Move it away, or give another folder with --to.")
    try:
        arrays = build(
            options.name,
            getattr(options, "from"),
            options.network,
            side=options.size,
            components=options.components,
            mean=options.mean,
            std=options.std,
        )
    except (ConsilienceError, OSError) as error:
        parser.error(str(error))
    options.to.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        np.savez_compressed(file, **arrays)
    print(f"written: {target}")
    for name, values in arrays.items():
        print(f"  {name}: {values.dtype} {values.shape}")
    return 0


def build(
    name: str,
    folder: Path,
    networks: Sequence[Any] = (),
    *,
    side: int = 32,
    components: int = COMPONENTS,
    mean: float = 0.5,
    std: float = 0.5,
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a data file.

    Parameters
    ----------
    name : {"cifar100", "cub", "mnist"}
        The data set whose experiments are to run. The images may be of anything.
    folder : Path
        Where the images are.
    networks : sequence of paths, torch modules or functions
        What makes the features of each view: ONNX files, or anything that takes float images (n, 3, h, w) and
        returns (n, d). Views without one use a default.
    side : int
        Images in folders become squares of this many pixels.
    components : int
        Most principal components of each view.
    mean, std : float
        Networks get ``(pixel / 255 - mean) / std``.
    """
    if name == "mnist":
        return _pixels_only(read_mnist(folder))
    data = read_images(folder, side)
    views = VIEWS[name]
    makers = [_network(one) for one in networks][: len(views)]
    arrays: dict[str, NDArray[Any]] = {}
    for title, make in zip(views, [*makers, *DEFAULTS[name][len(makers) :]], strict=True):
        parts = extract(make, data.train, data.test, components, mean, std)
        arrays |= {title.format(part): found for part, found in zip(("train", "test"), parts, strict=True)}
    return _alike(arrays) | _labels(data)


def _network(given: Any) -> Network:
    if isinstance(given, str | os.PathLike):
        return onnx_network(Path(given))
    return torch_network(given) if hasattr(given, "eval") else given


def _alike(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Cut all views to the width of the narrowest: the loader takes them to be of one width."""
    width = min(values.shape[1] for values in arrays.values())
    return {name: values[:, :width] for name, values in arrays.items()}


def _labels(data: Labelled) -> dict[str, NDArray[Any]]:
    return {"y_train": data.y_train, "y_test": data.y_test, "classes": np.array(data.classes)}


def _pixels_only(data: Labelled) -> dict[str, NDArray[Any]]:
    return {"x_train": data.train, "x_test": data.test, **_labels(data)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=FILES, help="the data set whose experiments are to run")
    parser.add_argument("--from", type=Path, required=True, metavar="FOLDER", help="folder of the images")
    parser.add_argument(
        "--to",
        type=Path,
        default=Path(os.environ.get(DATA_VARIABLE, ".")),
        metavar="FOLDER",
        help=f"folder to write to; default: ${DATA_VARIABLE}, or the current one",
    )
    parser.add_argument(
        "--network", type=Path, nargs="+", default=[], help="ONNX files that make the features of each view"
    )
    parser.add_argument(
        "--size", type=int, default=32, help="side of images in folders; default: %(default)s"
    )
    parser.add_argument(
        "--components", type=int, default=COMPONENTS, help="most features of a view; default: %(default)s"
    )
    parser.add_argument("--mean", type=float, default=0.5, help="taken from pixels in [0, 1]")
    parser.add_argument("--std", type=float, default=0.5, help="divides them then")
    return parser


if __name__ == "__main__":
    sys.exit(main())
