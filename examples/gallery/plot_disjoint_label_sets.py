"""
Teachers that share no class
============================

Three teams read digits. One knows 0 to 3, one 4 to 6, one 7 to 9. No class is known to two
teams, so nothing says how the confidence of one team compares with another's, and the paper's
equations leave that open. The default method compares the *ranks* of the rows instead. You
should see two confusion matrices: with the paper's method, whole classes are lost to another
team's; with the default most of them come back.
"""

import textwrap
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.neighbors import KNeighborsClassifier

from consilience import DisconnectedWarning, Unifier

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(y))
X, y = X[order] / 16, y[order]
theirs, unlabelled, test = slice(0, 600), slice(600, 1200), slice(1200, None)

# %%
# The teams have different kinds of models, which are sure in different ways.


def team(model, first: int, last: int):
    """Train a model on the rows of a team's own digits."""
    rows = (y[theirs] >= first) & (y[theirs] <= last)
    return model.fit(X[theirs][rows], y[theirs][rows])


teams = {
    "low": team(LogisticRegression(C=100, max_iter=5000), 0, 3),
    "middle": team(RandomForestClassifier(random_state=0), 4, 6),
    "high": team(KNeighborsClassifier(10), 7, 9),
}

# %%
# Both methods warn that nothing connects the label sets. The warning says what each of them
# does about it.

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", DisconnectedWarning)
    paper = Unifier(teams, "logistic", method="mf-lf", random_state=0).fit(X[unlabelled])
    default = Unifier(teams, "logistic", random_state=0).fit(X[unlabelled])
print("\n".join(textwrap.wrap(str(caught[0].message), 100)))

# %%
# The lines separate the teams. What is off the diagonal but inside a square, a team itself got
# wrong. What is outside of the squares went to a team that does not know the digit.

found = {"mf-lf: as in the paper": paper, "auto: compares ranks": default}
accuracy = {name: model.score(X[test], y[test]) for name, model in found.items()}
fig, axes = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained", sharey=True)
for axis, (name, model) in zip(axes, found.items(), strict=True):
    shares = confusion_matrix(y[test], model.predict(X[test]), normalize="true")
    image = axis.imshow(100 * shares, cmap="cividis", vmin=0, vmax=100)
    for border in (3.5, 6.5):
        axis.axhline(border, color="white", linewidth=1.5)
        axis.axvline(border, color="white", linewidth=1.5)
    axis.set_xticks(range(10))
    axis.set_yticks(range(10))
    axis.set_xlabel("predicted digit")
    axis.set_title(f"{name}\n{accuracy[name]:.0%} of the rows right")
axes[0].set_ylabel("true digit")
fig.colorbar(image, ax=axes, label="share of the digit's rows (%)", shrink=0.8)
plt.show()

# %%
# Read on: :doc:`/unify` explains ranks, and what else to do about label sets that share
# nothing.
