"""Backprop losses: against plain loops, finite differences, and the symmetries the objectives have."""

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from consilience import InvalidInputError, LabelSpace  # noqa: E402
from consilience.nn import CollisionCrossEntropy  # noqa: E402
from consilience.nn.losses import BACKPROP_LOSSES, MFLVBPLoss  # noqa: E402

METHODS = sorted(BACKPROP_LOSSES)
RIDGE = 0.01


def case(seed, n=5, abstain=0.3, scale=3.0):
    """Draw a label space, student logits (n, L) and packed logits (n, m) with abstentions."""
    rng = np.random.default_rng(seed)
    names = np.array(list("abcdefg")[: rng.integers(2, 8)])
    sizes = rng.integers(1, len(names) + 1, size=rng.integers(1, 5))
    space = LabelSpace([rng.permutation(names)[:k] for k in sizes], disconnected="ignore")
    student = rng.normal(scale=scale, size=(n, space.n_classes))
    packed = rng.normal(scale=scale, size=(n, space.n_columns))
    for i in range(space.n_teachers):
        packed[rng.random(n) < abstain, space.block(i)] = np.nan
    return space, torch.tensor(student), torch.tensor(packed)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def plain_rows(method, space, student, packed, temperature=3.0, ridge=RIDGE):
    """Transcribe the objectives of the paper with loops over rows and teachers."""
    rows = np.zeros(len(student))
    for r, (s, z) in enumerate(zip(student.numpy(), packed.numpy(), strict=True)):
        blocks = [i for i in range(space.n_teachers) if not np.isnan(z[space.block(i)]).any()]
        for i in blocks:
            columns, zi = space.columns[space.block(i)], z[space.block(i)] / temperature
            u = (softmax(s / temperature) if method == "mf-p" else s / temperature)[columns]
            if method == "ce":
                rows[r] -= softmax(zi) @ (u - np.log(np.exp(u).sum()))
            elif method == "mf-p":
                v = max(0.0, softmax(zi) @ u / (u @ u))
                rows[r] += ((softmax(zi) - v * u) ** 2).sum()
            elif method == "mf-lv":
                v = max(0.0, ((zi - zi.mean()) @ (u - u.mean())) / (ridge + ((u - u.mean()) ** 2).sum()))
                c = zi.mean() - v * u.mean()
                rows[r] += ((zi - v * u - c) ** 2).sum() + ridge * v**2
            else:
                d = zi - u
                rows[r] += ((d - d.mean()) ** 2).sum()
        if method == "mf-lv" and blocks:
            rows[r] += ridge * (s / temperature) @ (s / temperature)
    return rows


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 10**6), temperature=st.floats(0.5, 5.0))
@settings(max_examples=25, deadline=None)
def test_value_is_the_plain_loop(method, seed, temperature):
    space, student, packed = case(seed)
    loss = BACKPROP_LOSSES[method]
    expected = plain_rows(method, space, student, packed, temperature)
    rows = loss(space, temperature, reduction="none")(student, packed)
    np.testing.assert_allclose(rows, expected, rtol=1e-9, atol=1e-11)
    answered = (~torch.isnan(packed)).any(dim=1).sum().item()
    mean = loss(space, temperature)(student, packed).item()
    assert mean == pytest.approx(expected.sum() / max(answered, 1), rel=1e-9, abs=1e-11)
    assert loss(space, temperature, reduction="sum")(student, packed).item() == pytest.approx(
        expected.sum(), rel=1e-9, abs=1e-11
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(4))
def test_gradcheck(method, seed):
    space, student, packed = case(seed)
    loss = BACKPROP_LOSSES[method](space, reduction="none")
    assert torch.autograd.gradcheck(lambda s: loss(s, packed), student.requires_grad_())


@pytest.mark.parametrize("method", METHODS)
def test_silent_rows_have_no_gradient(method):
    space, student, packed = case(3, abstain=0.0)
    packed[2:] = torch.nan
    student.requires_grad_()
    loss = BACKPROP_LOSSES[method](space)
    loss(student, packed).backward()
    assert (student.grad[2:] == 0).all()
    assert loss(student, torch.full_like(packed, torch.nan)).item() == 0


@pytest.mark.parametrize("ridge", [0.0, 0.3, 5.0])
def test_mf_lv_solves_v_and_c_jointly(ridge):
    """No other v >= 0 and c give a lower value of eq. (15), by brute force over a fine grid of v."""
    space, student, packed = case(5, n=4, abstain=0.0)
    value = MFLVBPLoss(space, ridge=ridge, reduction="none")(student, packed).numpy()
    u, z = student.numpy() / 3, packed.numpy() / 3
    best = ridge * (u**2).sum(axis=1)
    grid = np.linspace(0, 20, 40001)[:, None, None]
    for i in range(space.n_teachers):
        block = space.block(i)
        d = z[:, block] - grid * u[:, space.columns[block]]
        d -= d.mean(axis=2, keepdims=True)
        best += ((d**2).sum(axis=2) + ridge * grid[:, :, 0] ** 2).min(axis=0)
    assert (value <= best + 1e-12).all()
    np.testing.assert_allclose(value, best, atol=1e-4)


STUDENT, PACKED = (
    [[1e4, -1e4, 0], [-1e4, -1e4, 1e4], [0, 1e4, -1e4]],
    [[1e4, -1e4, 0, 1e4], [0.0] * 4, [1e4] * 4],
)
LARGEST = [[1.7e308, -1.7e308, 1.0, -1.7e308], [0, -1e30, 1e30, 0], [1.0] * 4]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("student", "packed", "temperature"),
    [(STUDENT, PACKED, 3.0), *((torch.eye(3).tolist(), LARGEST, t) for t in (1e-6, 3.0, 1e6))],
)
def test_extreme_logits_stay_finite(method, dtype, student, packed, temperature):
    logits = torch.tensor(student, dtype=dtype, requires_grad=True)
    loss = BACKPROP_LOSSES[method](LabelSpace([["a", "b"], ["b", "c"]]), temperature)
    value = loss(logits, torch.tensor(packed, dtype=torch.float64))
    value.backward()
    assert value.dtype == dtype
    assert value.isfinite()
    assert logits.grad.isfinite().all()


def test_mf_p_has_a_gradient_where_the_student_has_no_mass():
    """The softmax over all classes underflows on the block, its ratios do not."""
    space = LabelSpace([["a", "b"], ["b", "c"]])
    student = torch.tensor([[-600.0, -603.0, 600.0]], requires_grad=True)
    packed = torch.tensor([[0.0, 6.0, torch.nan, torch.nan]])
    BACKPROP_LOSSES["mf-p"](space)(student, packed).backward()
    near = torch.tensor([[0.0, -3.0, 0.0]], requires_grad=True)
    BACKPROP_LOSSES["mf-p"](space)(near, packed).backward()
    torch.testing.assert_close(student.grad, near.grad)
    assert near.grad.abs().max() > 0.05


def test_large_offset_of_a_float64_teacher_keeps_its_digits_in_float32():
    space = LabelSpace([["a", "b"]])
    packed = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    for loss in BACKPROP_LOSSES.values():
        student = torch.tensor([[0.5, -0.5]])
        torch.testing.assert_close(loss(space)(student, packed + 1e7), loss(space)(student, packed))


@pytest.mark.parametrize("method", METHODS)
def test_half_precision_is_computed_in_float32(method):
    space, student, packed = case(8)
    student = student.half()
    value = BACKPROP_LOSSES[method](space)(student, packed.float())
    torch.testing.assert_close(value, BACKPROP_LOSSES[method](space)(student.float(), packed.float()))


def test_buffers_are_not_saved_and_move():
    space = LabelSpace([["a", "b"]])
    noisy = CollisionCrossEntropy(weight=[1.0, 2.0], transition=np.eye(2))
    assert len(list(noisy.buffers())) == 2
    assert "q=0.0" in repr(noisy)
    for loss in (BACKPROP_LOSSES["ce"](space), noisy):
        assert not loss.state_dict()
        assert all(buffer.device.type == "meta" for buffer in loss.to("meta").buffers())
    assert "n_classes=2, n_teachers=1, ridge=0.01" in repr(BACKPROP_LOSSES["mf-lv"](space))


@pytest.mark.parametrize(
    ("student", "packed", "words"),
    [
        *(
            (
                (2, 3),
                torch.tensor([[0.0] * 4, [0.0, 0.0, 0.0, value]]),
                "row 1 are not finite for teacher 2 of 2",
            )
            for value in (torch.nan, torch.inf)
        ),
        ((4, 2), torch.zeros(4, 4), r"Student logits have shape \(4, 2\) .*; expected \(n, 3\)"),
        ((4, 3), torch.zeros(4, 5), r"teacher logits \(4, 5\); expected \(n, 3\) and \(n, 4\)"),
        ((4, 3), torch.zeros(5, 4), r"shape \(4, 3\) and teacher logits \(5, 4\)"),
        ((3,), torch.zeros(1, 4), r"shape \(3,\)"),
    ],
)
def test_wrong_shapes_and_half_a_block_are_named(student, packed, words):
    loss = BACKPROP_LOSSES["ce"](LabelSpace([["a", "b"], ["b", "c"]]))
    with pytest.raises(InvalidInputError, match=words):
        loss(torch.zeros(student), packed)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": 0}, "temperature=0 must be"),
        ({"temperature": 1e-308}, "temperature=1e-308 must be from 1e-6 to 1e6"),
        ({"reduction": "means"}, "Did you mean 'mean'"),
        ({"ridge": -1}, "ridge=-1 must be"),
    ],
)
def test_wrong_parameters_are_named(options, words):
    with pytest.raises(InvalidInputError, match=words):
        MFLVBPLoss(LabelSpace([["a", "b"]]), **options)


def test_torch_is_asked_for_by_name():
    code = "import sys; sys.modules['torch'] = None; import consilience.nn"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (
        "MissingDependencyError: consilience.nn needs torch: pip install 'consilience[torch]'"
        in outcome.stderr
    )
