"""
Which classes are the same?
===========================

Two teams read digits. One names them in English, the other in German, and neither has a
dictionary. To a unifier "three" and "drei" are two classes. Teachers that mean the same class
are sure of the same rows, whatever they call it, so :func:`consilience.suggest_aliases` finds
such pairs from unlabelled rows. You should see the pairs that it suggests, the rows that speak
for them, and that with these aliases the unified model has a class for each digit instead of
two for some.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from consilience import ConsilienceWarning, Unifier, suggest_aliases

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(y))
X, y = X[order] / 16, y[order]
ENGLISH = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
GERMAN = np.array(
    ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
)

# %%
# The English team knows 0 to 7, the German one 2 to 9. They share six digits and no name.

here, there, rest = slice(0, 450), slice(450, 900), slice(900, None)
uk, de = y[here] <= 7, y[there] >= 2
teams = {
    "uk": LogisticRegression(max_iter=500).fit(X[here][uk], ENGLISH[y[here][uk]]),
    "de": MLPClassifier(64, max_iter=1000, random_state=0).fit(X[there][de], GERMAN[y[there][de]]),
}
found = suggest_aliases(teams, X[rest])
print(found)

# %%
# Why it works: take the ten rows of which the German team is surest for each of its words, and
# look at which English word the other team gives them. A digit that the English team does not
# know gets some other word, but then with less certainty.

english, german = ENGLISH[:8].tolist(), GERMAN[2:].tolist()  # in the order of the digits
of = {
    name: pd.DataFrame(team.predict_proba(X[rest]), columns=team.classes_)
    for name, team in teams.items()
}
together = [of["uk"].loc[of["de"][word].nlargest(10).index, english].mean() for word in german]

fig, axis = plt.subplots(figsize=(6.4, 5), layout="constrained")
image = axis.imshow(100 * np.array(together), cmap="cividis", vmin=0, vmax=100)
for pair in found.same_class:
    (row,) = np.flatnonzero(np.isin(german, [pair.alias, pair.name]))
    (column,) = np.flatnonzero(np.isin(english, [pair.alias, pair.name]))
    axis.add_patch(
        plt.Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=3)
    )
axis.set_xticks(range(len(english)), english, rotation=45)
axis.set_yticks(range(len(german)), german)
axis.set_xlabel("what the English team says (mean probability)")
axis.set_ylabel("the ten surest rows of the German team")
axis.set_title("Suggested pairs have a frame")
fig.colorbar(image, ax=axis, label="%", shrink=0.8)
plt.show()

# %%
# Nothing is applied by itself. Each suggestion comes with three rows to look at before you
# believe it.

fig, axes = plt.subplots(
    3, len(found.same_class), figsize=(9, 4.4), layout="constrained", squeeze=False
)
for column, pair in zip(axes.T, found.same_class, strict=True):
    column[0].set_title(f"{pair.alias} =\n{pair.name}?", fontsize=10)
    for axis, row in zip(column, pair.rows, strict=True):
        axis.imshow(X[rest][row].reshape(8, 8), cmap="gray_r")
        axis.set_axis_off()
plt.show()

# %%
# Now the unified model, without the aliases and with them.

with warnings.catch_warnings():
    # it warns of names that look like one class
    warnings.simplefilter("ignore", ConsilienceWarning)
    without = Unifier(teams, "logistic", random_state=0).fit(X[rest])
unified = Unifier(teams, "logistic", aliases=found.aliases, random_state=0).fit(X[rest])
print(len(without.classes_), "classes:", *without.classes_)
print(len(unified.classes_), "classes:", *unified.classes_)

# %%
# Read on: :doc:`/aliases` says how pairs are found, how often that is right, and how to do it
# on the command line.
