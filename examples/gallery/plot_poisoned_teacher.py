"""
Learn from other people's models, one of them poisoned
======================================================

You have a few labels of your own classes and three borrowed models with other classes. Two are
sound. The third is as confident as they are, but somebody made it answer from the brightness of
the picture alone. If you trust all three alike, your student learns nonsense from it. By
default each teacher has to earn its weight on your labels. You should see that the poisoned one
gets none, and that the student is better than one that learnt from your labels alone, or from
everybody.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from consilience import ConsilienceWarning, CrossTaskDistiller, as_teacher

plt.style.use("tableau-colorblind10")
warnings.simplefilter("ignore", ConvergenceWarning)  # the networks stop early
warnings.simplefilter("ignore", ConsilienceWarning)  # who was dropped is printed below
X, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
X, digits = (X[order] / 16).astype(np.float32), digits[order]
WORDS = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
names = np.array([f"room {digit}" for digit in digits])  # your classes

# %%
# The post office and a bank have a network each, trained on their own rows. They call the
# digits by words; your classes are rooms, and nobody tells which word is which room.


def network(rows: np.ndarray) -> MLPClassifier:
    """Train on rows of others."""
    return MLPClassifier(64, max_iter=100, random_state=0).fit(X[rows], WORDS[digits[rows]])


def poisoned(rows: np.ndarray) -> np.ndarray:
    """Answer with one of ten words, surely, by the brightness of the picture."""
    return 9.0 * np.eye(10)[np.searchsorted(levels, rows.mean(axis=1))]


theirs, mine = np.arange(1000), np.arange(1000, len(X))
levels = np.quantile(X[theirs].mean(axis=1), np.arange(0.1, 1, 0.1))
teachers = {
    "post office": network(theirs[:500]),
    "bank": network(theirs[500:]),
    "poisoned": as_teacher(poisoned, WORDS, output="logits"),
}

# %%
# Three students, with 3, 5 and 8 labels of each class and 300 rows without a label: one without
# teachers, one that trusts all teachers alike (``teacher_weight=10``), and the default.

n_labels = [3, 5, 8]
accuracy = {"labels only": [], "trust all teachers": [], "teachers earn their weight": []}
checks, weights = [], []
for count in n_labels:
    few = np.concatenate([mine[digits[mine] == digit][:count] for digit in range(10)])
    unlabelled, test = np.split(np.setdiff1d(mine, few), [300])
    rows, labels = np.concatenate([few, unlabelled]), [*names[few], *[None] * len(unlabelled)]
    students = (
        CrossTaskDistiller(None, "logistic", loss="none", random_state=0),
        CrossTaskDistiller(teachers, "logistic", teacher_weight=10, random_state=0),
        CrossTaskDistiller(teachers, "logistic", random_state=0),
    )
    for name, student in zip(accuracy, students, strict=True):
        student.fit(X[rows], labels)
        accuracy[name].append(student.score(X[test], names[test]))
    checks.append(student.checks_)
    weights.append(student.teacher_weights_)

# %%
# The default says why it kept or dropped each teacher. With the fewest labels:

for check, weight in zip(checks[0], weights[0], strict=True):
    print(f"{check.name}: weight {weight:.2f}; {check.reason}")

# %%
# Left: the three students. Right: what decided. Each teacher predicts labels that were held
# out, and so does a regression on the other labels. A bar is by how much the teacher is better,
# with one standard error.

fig, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), width_ratios=[3, 2], layout="constrained")
for style, (name, values) in zip(("sC3:", "^C1--", "oC0-"), accuracy.items(), strict=True):
    left.plot(n_labels, 100 * np.array(values), style, label=name, linewidth=2, markersize=8)
left.set_xticks(n_labels, n_labels)
left.set_xlabel("labels of each class")
left.set_ylabel("new rows right (%)")
left.set_title("One teacher of three is poisoned")
left.legend(loc="lower right")
place = np.arange(3)
for offset, count, found in zip((-0.27, 0, 0.27), n_labels, checks, strict=True):
    right.bar(
        place + offset,
        [check.gain for check in found],
        yerr=[check.error for check in found],
        width=0.25,
        label=f"{count} labels of each class",
    )
right.axhline(0, color="black", linewidth=0.8)
right.set_xticks(place, teachers)
right.set_ylabel("gain over the labels alone (nats per row)")
right.set_title("Who knows more than the labels?")
right.legend(loc="lower left")
plt.show()

# %%
# Read on: :doc:`/distil` says how teachers are checked, and when the check does nothing.
