"""
Which of these models will help me?
===================================

You keep other people's models in a folder. A new task comes, with a few labels, and with
classes of other names. Training a student with each model would tell which one helps, but takes
long. :class:`consilience.Repository` compares all models by what they once said about some
reference rows, runs only the best few, and ranks these. You should see that the models it picks
are among those that make the best students, that useless models are far down, and that most
models never ran.
"""

import tempfile
import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from consilience import ConsilienceWarning, CrossTaskDistiller, Repository

plt.style.use("tableau-colorblind10")
warnings.simplefilter("ignore", ConvergenceWarning)  # the networks stop early
warnings.simplefilter("ignore", ConsilienceWarning)  # some models are bad on purpose
random = np.random.default_rng(0)
X, y = load_digits(return_X_y=True)
order = random.permutation(len(y))
X, y = (X[order] / 16).astype(np.float32), y[order]
theirs, reference, mine = np.arange(700), np.arange(700, 900), np.arange(900, len(y))

# %%
# Fill the repository. Some models know the digits from 5 to 9 well, some know other digits,
# some learnt from few rows, and some from labels that were drawn at random. They are saved as
# ONNX files with cards; the reference rows have no labels.

models = Repository(tempfile.mkdtemp() + "/models")
models.set_reference(X[reference])
KINDS = {
    "logistic": LogisticRegression(max_iter=300),
    "forest": RandomForestClassifier(30, random_state=0),
    "network": MLPClassifier(32, max_iter=60, random_state=0),
}
TASKS = {  # the digits that a model learns, from how many rows
    "all digits": (range(10), 700),
    "4 to 9": (range(4, 10), 700),
    "even digits": (range(0, 10, 2), 700),
    "0 to 4": (range(5), 700),
    "few rows": (range(10), 40),
    "random labels": (range(10), 700),
}
for task, (digits, n_rows) in TASKS.items():
    rows = theirs[:n_rows][np.isin(y[theirs[:n_rows]], digits)]
    labels = random.permutation(y[rows]) if task == "random labels" else y[rows]
    for kind, model in KINDS.items():
        models.add(model.fit(X[rows], labels), name=f"{kind} - {task}", example=X[:5])
print(f"{len(models)} models")

# %%
# My task: the digits from 5 to 9, under names of my own, with eight labels each. Search it.
# Only four models run.

mine = mine[y[mine] >= 5]
names = np.array([f"shelf {digit}" for digit in y])
few = np.concatenate([mine[y[mine] == digit][:8] for digit in range(5, 10)])
unlabelled, test = np.split(np.setdiff1d(mine, few), [150])
found = models.search(X[few], names[few], top=4)
print(found)

# %%
# Was that right? Train a student with *each* model, which the search avoids, and compare.


def student(teacher) -> float:
    """Train a student with one teacher, trust it, and return the accuracy."""
    rows = np.concatenate([few, unlabelled])
    labels = [*names[few], *[None] * len(unlabelled)]
    model = CrossTaskDistiller(teacher, "logistic", teacher_weight=10, random_state=0)
    return model.fit(X[rows], labels).score(X[test], names[test])


truth = {name: student(models[name]) for name in found.matches}
scores = np.array(list(found.matches.values()))
accuracy = np.array([truth[name] for name in found.matches])
labels_only = CrossTaskDistiller(None, "logistic", loss="none").fit(X[few], names[few])
baseline = labels_only.score(X[test], names[test])
correlation = spearmanr(scores, accuracy).statistic
print(f"rank correlation of score and accuracy: {correlation:.2f}")

# %%
# Each mark is a model. The colour says what it knows, the shape what kind it is. A ring marks
# those that the search ran.

fig, axis = plt.subplots(figsize=(9, 4.6), layout="constrained")
axis.axhline(100 * baseline, color="grey", linestyle=":", label="no teacher: labels only")
for name, score in found.matches.items():
    kind, knows = name.split(" - ")
    axis.scatter(
        score,
        100 * truth[name],
        s=80,
        marker="os^"[list(KINDS).index(kind)],
        color=f"C{list(TASKS).index(knows)}",
    )
ran = np.isin(list(found.matches), [row.name for row in found])
axis.scatter(
    scores[ran],
    100 * accuracy[ran],
    s=260,
    facecolors="none",
    edgecolors="black",
    label="run and ranked",
)
for place, knows in enumerate(TASKS):
    axis.scatter([], [], s=80, color=f"C{place}", marker="D", label=knows)
for marker, kind in zip("os^", KINDS, strict=True):
    axis.scatter([], [], s=60, color="grey", marker=marker, label=kind)
axis.set_xlabel("score of the search, from descriptions alone (nats, higher is better)")
axis.set_ylabel("accuracy of a student with this teacher (%)")
axis.set_title("Does the search find the models that make good students?")
fig.legend(loc="outside right center", frameon=False)
plt.show()

# %%
# Read on: :doc:`/repository` keeps and searches models, :doc:`/rank` has the metrics.
