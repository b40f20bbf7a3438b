"""Figures on labelled sentences, against cases worked out by hand and against scikit-learn."""

import pytest
from examples.language_identification.evaluation import CEILING, Group, evaluate
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score

TRUTH = ["deu", "deu", "deu", "fra", "ita", "tlh"]
KNOWN = {"A": {"deu", "fra", "ita"}, "B": {"deu", "fra"}, "C": {"deu"}}
ANSWERS = {
    "A": ["deu", "fra", "fra", "fra", "ita", "deu"],
    "B": ["deu", "deu", "fra", "fra", "fra", "deu"],
    "C": ["deu", "", "", "deu", "", "deu"],
    "vote": ["deu", "deu", "fra", "fra", "ita", "deu"],
}


def test_figures_by_hand() -> None:
    found = evaluate(TRUTH, ANSWERS, KNOWN, look_at="vote", n_classes={"vote": 9})
    assert (found.rows, found.languages, found.uncovered) == (6, 4, 1)
    assert found.groups == (
        Group("all teachers", 3, 1),
        Group("some", 1, 1),
        Group("one", 1, 1),
        Group("none", 1, 1),
    )
    systems = {system.name: system for system in found.systems}
    assert list(systems) == ["A", "B", "C", "vote", CEILING]
    assert systems["A"].accuracy == pytest.approx(3 / 6)
    assert systems["A"].macro == pytest.approx((1 / 3 + 1 + 1 + 0) / 4)
    assert systems["A"].by_group == {"all teachers": pytest.approx(1 / 3), "some": 1, "one": 1, "none": 0}
    assert systems["C"].accuracy == pytest.approx(1 / 6)  # silence is an error
    assert [one.code for one in found.by_language] == ["tlh", "deu", "fra", "ita"]  # the worst first
    assert systems["vote"].accuracy == pytest.approx(4 / 6)
    assert systems[CEILING].accuracy == pytest.approx(4 / 6)
    assert [systems[name].languages for name in systems] == [3, 2, 1, 9, 3]


codes = st.sampled_from(["deu", "fra", "ita", "spa"])


@given(st.lists(st.tuples(codes, codes, codes), min_size=1, max_size=30))
def test_figures_are_those_of_scikit_learn(rows: list[tuple[str, str, str]]) -> None:
    truth, first, second = zip(*rows, strict=True)
    known = {"A": ["deu", "fra"], "B": ["fra", "ita", "spa"]}
    found = evaluate(truth, {"A": first, "B": second}, known, look_at="A")
    for system, said in zip(found.systems, (first, second), strict=False):
        assert system.accuracy == pytest.approx(accuracy_score(truth, said))
        if set(said) <= set(truth) and len(set(truth)) > 1:  # otherwise it warns
            assert system.macro == pytest.approx(balanced_accuracy_score(truth, said))
        sizes = [(group.rows / found.rows, system.by_group[group.name]) for group in found.groups]
        assert sum(part * value for part, value in sizes) == pytest.approx(system.accuracy)
    assert sum(one.rows for one in found.by_language) == len(rows)
