"""What must hold for every method, whatever the teachers say."""

import warnings
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax

from consilience import ConvergenceWarning, LabelSpace, estimate_soft_labels, methods
from consilience.labels.space import connected_classes
from consilience.soft_labels.solvers import SOLVERS

Way = str

bounded = settings(
    max_examples=25, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
# "off-set" is ce with off-set weighting
WAYS = (*SOLVERS, "off-set")
row_by_row = pytest.mark.parametrize("method", WAYS)
every_method = pytest.mark.parametrize("method", [*WAYS, "ranks", "auto"])
between_components = pytest.mark.parametrize("method", [method for method in WAYS if method != "sd"])
# The factorisations stop by a change of 1e-3, not at a minimum; rounding alone moves what they stop at.
ATOL = {"sd": 1e-13, "ce": 1e-7, "mf-lf": 1e-9, "mf-p": 1e-6, "mf-lv": 1e-6, "off-set": 1e-11}
# Ranks are exact; the weights of a pool are found to about 1e-3.
ATOL |= {"ranks": 1e-9, "auto": 5e-3}
SHORT = {"mf-p": 500, "mf-lv": 500}


class Case(NamedTuple):
    lists: list[list[int]]
    logits: np.ndarray
    temperature: float


@st.composite
def cases(draw: st.DrawFn, identical: bool = False, abstain: bool = True, scale: float = 8.0) -> Case:
    n_classes = draw(st.integers(1, 6))
    n_teachers = draw(st.integers(1, 5))
    some = st.lists(st.integers(0, n_classes - 1), min_size=1, max_size=n_classes, unique=True)
    every = st.permutations(range(n_classes)).map(list)
    lists = draw(st.lists(every if identical else some, min_size=n_teachers, max_size=n_teachers))
    rows = draw(st.integers(1, 4))
    size = sum(map(len, lists))
    logits = draw(arrays(float, (rows, size), elements=st.floats(-scale, scale, width=32)))
    if abstain:
        silent = draw(arrays(bool, (rows, n_teachers)))
        logits[np.repeat(silent, [len(values) for values in lists], axis=1)] = np.nan
    return Case(lists, logits, draw(st.sampled_from([1.0, 3.0])))


def soft_labels(
    lists: list[list[int]], logits: np.ndarray, temperature: float, method: Way, ridge: float = 0.01
) -> np.ndarray:
    space = LabelSpace(lists, disconnected="ignore")
    if method == "off-set":
        return estimate_soft_labels(logits, space, methods.CE(temperature=temperature, off_set=True))
    with warnings.catch_warnings():
        if method in ("mf-p", "mf-lv"):  # weakly linked teachers take alternating least squares for ever
            warnings.simplefilter("ignore", ConvergenceWarning)
        options: dict[str, int | float] = {"max_iter": SHORT[method]} if method in SHORT else {}
        if method == "mf-lv":
            options["ridge"] = ridge
        return estimate_soft_labels(logits, space, methods.METHODS[method](temperature, **options))


def blocks(lists: list[list[int]]) -> list[slice]:
    borders = np.cumsum([0] + [len(values) for values in lists])
    return [slice(start, stop) for start, stop in pairwise(borders)]


@every_method
@bounded
@given(case=cases())
def test_rows_lie_on_the_simplex(method: Way, case: Case) -> None:
    Q = soft_labels(*case, method)
    assert (Q >= 0).all()
    np.testing.assert_allclose(Q.sum(axis=1), 1.0, atol=1e-12)


@every_method
@bounded
@given(case=cases(), seed=st.integers(0, 99))
def test_order_of_classes_does_not_matter(method: Way, case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    known = np.unique(np.concatenate(case.lists))
    # new names, and each teacher's columns in a new order
    names = dict(zip(known.tolist(), rng.permutation(100)[: len(known)].tolist(), strict=True))
    orders = [rng.permutation(len(values)) for values in case.lists]
    lists = [[names[values[k]] for k in order] for values, order in zip(case.lists, orders, strict=True)]
    logits = np.concatenate(
        [case.logits[:, block][:, order] for block, order in zip(blocks(case.lists), orders, strict=True)],
        axis=1,
    )
    place = {name: i for i, name in enumerate(sorted(names.values()))}
    moved = soft_labels(lists, logits, case.temperature, method)[:, [place[names[c]] for c in known]]
    np.testing.assert_allclose(moved, soft_labels(*case, method), atol=ATOL[method])


@every_method
@bounded
@given(case=cases(), seed=st.integers(0, 99))
def test_order_of_teachers_does_not_matter(method: Way, case: Case, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(case.lists))
    logits = np.concatenate([case.logits[:, blocks(case.lists)[i]] for i in order], axis=1)
    moved = soft_labels([case.lists[i] for i in order], logits, case.temperature, method)
    np.testing.assert_allclose(moved, soft_labels(*case, method), atol=ATOL[method])


@row_by_row
@bounded
@given(case=cases())
def test_rows_do_not_know_each_other(method: Way, case: Case) -> None:
    Q = soft_labels(*case, method)
    backwards = soft_labels(case.lists, case.logits[::-1], case.temperature, method)[::-1]
    # matrix products of other shapes round otherwise; nothing else may differ
    np.testing.assert_allclose(backwards, Q, atol=1e-9)
    for row in range(len(Q)):
        alone = soft_labels(case.lists, case.logits[row : row + 1], case.temperature, method)
        np.testing.assert_allclose(alone[0], Q[row], atol=1e-9)


@every_method
@bounded
@given(case=cases(abstain=False), data=st.data())
def test_an_abstaining_teacher_is_as_good_as_absent(method: Way, case: Case, data: st.DataObject) -> None:
    lists = [*case.lists, data.draw(st.lists(st.integers(0, 7), min_size=1, unique=True))]
    logits = np.hstack([case.logits, np.full((len(case.logits), len(lists[-1])), np.nan)])
    Q = soft_labels(lists, logits, case.temperature, method)
    known = np.isin(np.unique(np.concatenate(lists)), np.concatenate(case.lists))
    if method == "sd":
        assert (Q[:, ~known] == 0).all()
    else:
        np.testing.assert_allclose(Q[:, ~known], 1 / Q.shape[1], atol=1e-12)
    without = soft_labels(*case, method)
    np.testing.assert_allclose(
        Q[:, known] / Q[:, known].sum(axis=1, keepdims=True), without, atol=ATOL[method]
    )


@bounded
@given(case=cases(identical=True, abstain=False))
def test_identical_label_sets_are_plain_distillation(case: Case) -> None:
    sorted_logits = np.stack(
        [
            case.logits[:, block][:, np.argsort(values)]
            for block, values in zip(blocks(case.lists), case.lists, strict=True)
        ]
    )
    mean_p = softmax(sorted_logits / case.temperature, axis=2).mean(axis=0)
    mean_z = softmax(sorted_logits.mean(axis=0) / case.temperature, axis=1)
    np.testing.assert_allclose(soft_labels(*case, "sd"), mean_p, atol=1e-12)
    np.testing.assert_allclose(soft_labels(*case, "ce"), mean_p, atol=1e-7)
    np.testing.assert_allclose(soft_labels(*case, "off-set"), mean_p, atol=1e-12)
    np.testing.assert_allclose(soft_labels(*case, "mf-lf"), mean_z, atol=1e-12)


@pytest.mark.parametrize(("method", "atol"), [(method, ATOL[method]) for method in WAYS])
@bounded
@given(case=cases(abstain=False, scale=4.0), copies=st.integers(1, 4))
def test_teachers_that_agree_are_believed(method: Way, atol: float, case: Case, copies: int) -> None:
    values, block = case.lists[0], blocks(case.lists)[0]
    logits = case.logits[:, block]
    Q = soft_labels([values] * copies, np.tile(logits, copies), case.temperature, method, ridge=1e-6)
    expected = softmax(logits / case.temperature, axis=1)[:, np.argsort(values)]
    # mf-lv agrees up to its regularizer, which trades the scale of u for that of v
    np.testing.assert_allclose(Q, expected, atol=0.01 if method == "mf-lv" else atol)


@between_components
@bounded
@given(case=cases())
def test_a_component_has_mass_in_proportion_to_its_size(method: Way, case: Case) -> None:
    Q = soft_labels(*case, method)
    space = LabelSpace(case.lists, disconnected="ignore")
    for q, z in zip(Q, case.logits, strict=True):
        active = [i for i in range(space.n_teachers) if not np.isnan(z[space.block(i)]).any()]
        columns = [space.columns[space.block(i)] for i in active]
        offsets = np.cumsum([0] + [len(block) for block in columns])
        ids = connected_classes(np.concatenate([*columns, []]).astype(int), offsets, space.n_classes)
        np.testing.assert_allclose(np.bincount(ids, q), np.bincount(ids) / space.n_classes, atol=1e-12)
