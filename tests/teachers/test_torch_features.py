"""Embeddings and class weights of torch modules."""

import copy
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from consilience.exceptions import TeacherError
from consilience.teachers import Torch, as_teacher

torch = pytest.importorskip("torch")
nn = torch.nn

X = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
CLASSES = ["a", "b", "c"]


def run(module: Any, rows: Any = X) -> np.ndarray:
    with torch.no_grad():
        return module.eval()(torch.tensor(rows)).numpy()


class Careless(nn.Module):  # type: ignore[misc,name-defined]
    """Defines its head first, another layer of k outputs last, and writes into its embedding afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(3, 3), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        hidden = self.body(x).relu()
        logits = self.head(hidden)
        hidden.zero_()
        return logits


def test_the_head_is_the_last_to_run_not_the_last_to_be_defined() -> None:
    module = Careless()
    teacher = as_teacher(module, CLASSES)
    assert teacher.class_weights is None  # two layers could be it, and none has run
    seen = teacher.observe(X)
    np.testing.assert_allclose(seen.embeddings, np.maximum(run(module.body), 0), atol=1e-6)
    np.testing.assert_array_equal(teacher.class_weights, module.head.weight.detach().numpy())


def test_a_head_that_is_no_linear_layer_has_an_embedding_by_name_only() -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    images = np.random.default_rng(0).normal(size=(5, 1, 6, 6)).astype(np.float32)
    plain = as_teacher(module, CLASSES)
    assert plain.embed(X) is plain.class_weights is plain.observe(images).embeddings is None
    named = as_teacher(module, CLASSES, embed="1")
    np.testing.assert_allclose(named.embed(images), run(module[:2], images).mean(axis=(2, 3)), atol=1e-6)
    assert named.class_weights is None


def test_a_head_on_every_step_of_a_sequence_is_averaged() -> None:
    class Tokens(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(9, 5), nn.Linear(5, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.table(x)).mean(dim=1)

    module, ids = Tokens(), np.arange(12).reshape(4, 3) % 9
    teacher = as_teacher(module, CLASSES)
    seen = teacher.observe(ids)
    np.testing.assert_allclose(seen.embeddings, run(module.table, ids).mean(axis=1), atol=1e-6)
    logits = seen.embeddings @ teacher.class_weights.T + module.head.bias.detach().numpy()
    np.testing.assert_allclose(seen.logits, logits, atol=1e-5)


def two_layers() -> Any:
    return nn.Sequential(nn.Linear(4, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))


@pytest.mark.parametrize(
    ("embed", "until", "has_weights"),
    [("0", 1, False), ("2", 3, True), ("3:input", 3, True), ("1:input", 1, False)],
)
def test_a_layer_can_be_named(embed: str, until: int, has_weights: bool) -> None:
    module = two_layers()
    teacher = Torch(module, CLASSES, embed=embed, batch_size=3)
    np.testing.assert_allclose(teacher.embed(X), run(module[:until]), atol=1e-6)
    assert (teacher.class_weights is not None) == has_weights


def test_a_function_of_the_batch_in_eval_mode() -> None:
    module = two_layers()
    module.train()
    teacher = Torch(module, CLASSES, embed=module[:3], batch_size=3)
    found = teacher.embed(X)
    assert module[1].num_batches_tracked == 0
    assert module.training
    np.testing.assert_allclose(found, run(module[:3]), atol=1e-6)
    assert teacher.class_weights.shape == (3, 7)  # it gives what enters the head
    assert teacher.fingerprint is None
    np.testing.assert_allclose(as_teacher(module, CLASSES, embed=lambda x: x * 2).embed(X), 2 * X)


@pytest.mark.parametrize(
    ("embed", "says"),
    [
        ("9", r"'Sequential' has no layer '9'; it has, for example, .*'3'.*'name:input' its input"),
        ("2:output", "has no layer '2:output'"),
        (3, "has embed=3; give the name of a layer"),
    ],
)
def test_layers_that_are_not_there(embed: Any, says: str) -> None:
    with pytest.raises(TeacherError, match=says):
        as_teacher(two_layers(), CLASSES, embed=embed)


@pytest.mark.parametrize(
    ("embed", "says"),
    [
        (lambda x: x[:3], r"embeddings of shape \(3, 4\) for 10 rows"),
        (lambda x: (x, x), "embeddings that are a tuple for 10 rows"),
        (lambda x: x[:, 0], r"embeddings of shape \(10,\)"),
        (lambda x: torch.where(x == x.max(), torch.inf, x), "embeddings have inf in row"),
        (lambda x: x.missing, "failed on X of shape"),
    ],
)
def test_embeddings_that_are_none(embed: Any, says: str) -> None:
    with pytest.raises(TeacherError, match=says):
        as_teacher(two_layers(), CLASSES, embed=embed).embed(X)


def test_a_linear_layer_that_never_runs_gives_no_embedding() -> None:
    module = nn.Sequential(nn.Flatten())
    module.unused = nn.Linear(4, 3)
    module.forward = lambda x: x[:, :3]
    teacher = as_teacher(module, CLASSES)
    assert teacher.observe(X).embeddings is None
    assert teacher.embed(X) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_embeddings_have_a_type_that_numpy_has(dtype: Any) -> None:
    module = nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 3)).to(dtype)
    found = as_teacher(module, CLASSES).embed(X)
    assert found.dtype == (np.float64 if dtype == torch.float64 else np.float32)


def test_a_fingerprint_changes_with_the_model_and_with_nothing_else() -> None:
    module = two_layers()

    def mark(**options: Any) -> str | None:
        return Torch(module, options.pop("classes", CLASSES), **options).fingerprint

    first, teacher = mark(), as_teacher(module, CLASSES)
    module.train()
    assert first == teacher.fingerprint == mark(name="other", batch_size=2, classes=["x", "y", "z"])
    assert (
        len({first, mark(embed="2"), mark(floor=1e-3), mark(fingerprint="v1"), mark(fingerprint="v2")}) == 5
    )
    with torch.no_grad():
        module[3].bias[0] += 1e-3
    found = {first, mark()}
    for module[2] in (nn.Tanh(), nn.LeakyReLU(0.1), nn.LeakyReLU(0.2)):  # no tensor changes
        found.add(mark())
    assert len(found) == 5
    assert mark() == teacher.fingerprint  # of the module as it is now


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_compiled_modules_have_a_fingerprint_and_no_embedding() -> None:
    parts = (nn.ReLU(), nn.Tanh())
    modules = [nn.Sequential(nn.Linear(4, 7), part, nn.Linear(7, 3)).eval() for part in parts]
    modules[1][0], modules[1][2] = modules[0][0], modules[0][2]
    teachers = [as_teacher(torch.jit.trace(module, torch.zeros(2, 4)), CLASSES) for module in modules]
    first, other = (teacher.fingerprint for teacher in teachers)
    assert teachers[0].fingerprint == first != other
    assert teachers[0].observe(X).embeddings is None


def test_a_randomised_twin_has_the_same_structure_and_other_weights() -> None:
    module = two_layers()
    teacher = as_teacher(module, CLASSES)
    before = run(module)
    twin, again, other = (teacher.randomised(seed).embed(X) for seed in (0, 0, 1))
    np.testing.assert_array_equal(twin, again)
    assert min(np.abs(twin - other).max(), np.abs(twin - teacher.embed(X)).max()) > 0.01
    np.testing.assert_array_equal(run(module), before)


class Held(nn.Module):  # type: ignore[misc,name-defined]
    """Computes with whatever it holds."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self._held = nn.Linear(4, 3), held

    def forward(self, x: Any) -> Any:
        return self.layer(x)


def marks(*modules: Any) -> list[str | None]:
    return [as_teacher(module, CLASSES).fingerprint for module in modules]


@pytest.mark.parametrize(
    "hold",
    [
        lambda value: [value],
        lambda value: {"factor": value},
        lambda value: {value},
        lambda value: np.array(value),
        lambda value: np.array([value], dtype=object),
        lambda value: np.float32(value),
        lambda value: torch.tensor(value),
        lambda value: ([(value,)],),
        lambda value: [nn.LeakyReLU(value)],
        lambda value: SimpleNamespace(factor=value),
        lambda value: lambda x: x * value,
        lambda value: torch.float32 if value == 1 else torch.float64,
    ],
)
def test_whatever_a_module_holds_is_part_of_its_fingerprint(hold: Any) -> None:
    first, again, other, odd = marks(
        *(Held(hold(value)) for value in (1.0, 1.0, 5.0)), Held(i for i in range(3))
    )
    assert None not in (first, other)
    assert first == again != other
    assert odd is None  # what cannot be compared


class Whole(nn.Module):  # type: ignore[misc,name-defined]
    """Has one of all that a module may have."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.norm, self.leak = nn.Linear(4, 3), nn.BatchNorm1d(3), nn.LeakyReLU(0.1)
        self.register_buffer("mask", torch.ones(3))
        self.register_buffer("unsaved", torch.ones(3), persistent=False)
        self.own, self.factor = nn.Parameter(torch.zeros(3)), 1.0

    def forward(self, x):  # type: ignore[no-untyped-def]
        found = self.norm(self.leak(self.layer(x))) * self.mask * self.unsaved
        return found * self.factor + self.own


def double(module: Any, inputs: Any, output: Any = None) -> Any:
    return inputs[0] * 2 if output is None else output * 2


CHANGES: dict[str, Any] = {
    "own parameter": lambda module: module.own.data.add_(1e-3),
    "weight of a part": lambda module: module.layer.weight.data.add_(1e-3),
    "buffer": lambda module: module.mask.mul_(2),
    "buffer that is not saved": lambda module: module.unsaved.mul_(2),
    "running mean": lambda module: module.norm.running_mean.add_(1),
    "setting of its own": lambda module: setattr(module, "factor", 5.0),
    "setting of a part": lambda module: setattr(module.leak, "negative_slope", 0.2),
    "part": lambda module: setattr(module, "leak", nn.Tanh()),
}
HOOKS: dict[str, Any] = {
    "hook": lambda module: module.register_forward_hook(double),
    "hook before": lambda module: module.register_forward_pre_hook(double),
    "hook of a part": lambda module: module.layer.register_forward_hook(double),
    "hook before a part": lambda module: module.layer.register_forward_pre_hook(double),
}
WRAPS: dict[str, Any] = {
    "plain": lambda module: module,
    "in sequence": nn.Sequential,
    "parallel": nn.DataParallel,
    "scripted": torch.jit.script,
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("wrap", "change"),
    [(wrap, change) for wrap in WRAPS for change in (*CHANGES, *(HOOKS if wrap != "scripted" else ()))],
)
def test_whatever_changes_the_outputs_changes_the_fingerprint(wrap: str, change: str) -> None:
    first, again, other = Whole().eval(), Whole().eval(), Whole().eval()
    with torch.no_grad():
        {**CHANGES, **HOOKS}[change](other)
    assert not np.array_equal(run(other), run(first))  # or this tests nothing
    found = marks(*map(WRAPS[wrap], (first, again, other)))
    assert None not in found
    assert found[0] == found[1] != found[2]


CODE = """
from torch import nn
FACTOR = {0}
def helper(x):
    return x + {1}
class Written(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
    def scaled(self, x):
        return x * {2}
    def forward(self, x):
        inner = lambda z: z.sum({3}, keepdim=True) * {4}
        return helper(self.scaled(self.layer(x))) * FACTOR + inner(x)
"""


@pytest.mark.parametrize("place", range(5))
def test_the_code_that_a_module_runs_is_part_of_its_fingerprint(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as in a program that is run with "python -m", by an installed module
    monkeypatch.setattr(sys.modules["__main__"], "__file__", pytest.__file__, raising=False)

    def written(*values: Any) -> Any:
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec(CODE.format(*values), scope)  # noqa: S102
        torch.manual_seed(0)
        return scope["Written"]()

    values: list[Any] = [1.0, 1.0, 1.0, (0, 1), 1.0]
    changed = [*values[:place], (1,) if place == 3 else 5.0, *values[place + 1 :]]
    first, again, other = marks(written(*values), written(*values), written(*changed))
    assert first is not None
    assert first == again != other


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LSTM(4, 3, batch_first=True),
        lambda: nn.TransformerEncoderLayer(4, 2, 8),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 3)).to(torch.bfloat16),
    ],
)
def test_torchs_own_modules_have_a_fingerprint_that_survives_a_copy(make: Any) -> None:
    module = make()
    first, copied = marks(module, copy.deepcopy(module))
    next(module.parameters()).data.add_(1)
    assert None is not first == copied != marks(module)[0]


@pytest.mark.parametrize(
    ("embed", "axes"), [("0", (2, 3)), ("1:input", (2, 3)), ("1", (2, 3)), ("3:input", (1, 2)), ("3", (1, 2))]
)
def test_the_kind_of_a_named_layer_tells_where_its_features_are(embed: str, axes: tuple[int, ...]) -> None:
    class Last(nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x.permute(0, 2, 3, 1)

    images = np.random.default_rng(0).normal(size=(6, 1, 8, 5)).astype(np.float32)
    module = nn.Sequential(
        nn.Conv2d(1, 3, 1), nn.Conv2d(3, 7, 1), Last(), nn.Linear(7, 4), nn.Flatten(), nn.Linear(160, 3)
    )
    until = int(embed[0]) + (not embed.endswith("input"))
    expected = run(module[:until], images).mean(axis=axes)
    np.testing.assert_allclose(as_teacher(module, CLASSES, embed=embed).embed(images), expected, atol=1e-5)
