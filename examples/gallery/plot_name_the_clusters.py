"""
Cluster, and name the clusters with 1 % of the labels
=====================================================

You have many rows and time to label one in a hundred. :class:`consilience.CollisionClustering`
clusters all rows and lets the few labels say which cluster is which. You should see a map of
the digits in which most clusters carry the right name, though nearly all rows came without one,
and a classifier that is better than one trained on the labelled rows alone.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import TSNE

from consilience import CollisionClustering

# nine colours that colour-blind people can tell apart, and grey
COLOURS = [
    "#CC6677",
    "#332288",
    "#DDCC77",
    "#117733",
    "#88CCEE",
    "#882255",
    "#44AA99",
    "#999933",
    "#AA4499",
    "#BBBBBB",
]
random = np.random.default_rng(0)
X, truth = load_digits(return_X_y=True)
X = X / 16

# %%
# Label one row of each digit, and then any rows up to one in a hundred. ``-1`` means: no label.

chosen = [random.choice(np.flatnonzero(truth == digit)) for digit in range(10)]
others = np.setdiff1d(np.arange(len(X)), chosen)
chosen = np.concatenate([chosen, random.choice(others, len(X) // 100 - 10, replace=False)])
y = np.full(len(X), -1)
y[chosen] = truth[chosen]
print(f"{(y >= 0).sum()} of {len(y)} rows have a label")

# %%
# Fit both models on the same labels. Only the first also sees the rows without a label.

clusters = CollisionClustering(10, random_state=0).fit(X, y)
labels_only = LogisticRegression(max_iter=1000).fit(X[chosen], truth[chosen])
rest = y < 0
accuracy = {
    "labelled rows only": labels_only.score(X[rest], truth[rest]),
    "all rows": float(np.mean(clusters.labels_[rest] == truth[rest])),
}
for name, value in accuracy.items():
    print(f"{name}: {value:.0%} of the rows without a label are right")

# %%
# Each point is a row, placed by t-SNE. The colour is the cluster that it ended in, a ring marks
# a labelled row, and crosses are rows with a wrong name.

place = TSNE(init="pca", max_iter=500, random_state=0).fit_transform(X)
wrong = clusters.labels_ != truth
fig, axis = plt.subplots(figsize=(7, 5.6), layout="constrained")
axis.scatter(*place[~wrong].T, c=clusters.labels_[~wrong], cmap=ListedColormap(COLOURS), s=8)
axis.scatter(*place[wrong].T, c="black", marker="x", s=14, linewidths=0.8, label="wrong name")
axis.scatter(
    *place[chosen].T,
    facecolors="none",
    edgecolors="black",
    s=110,
    linewidths=1.6,
    zorder=5,
    label="labelled row",
)
for digit in range(10):
    middle = np.median(place[clusters.labels_ == digit], axis=0)
    frame = {"boxstyle": "circle", "facecolor": "white", "alpha": 0.6, "linewidth": 0}
    axis.text(*middle, digit, fontsize=20, weight="bold", ha="center", va="center", bbox=frame)
axis.set_xticks([])
axis.set_yticks([])
axis.set_title(
    f"{(~wrong).mean():.0%} of {len(X)} digits have the right name, from {len(chosen)} labels"
)
axis.legend(loc="lower left", bbox_to_anchor=(0, -0.08), ncols=2, frameon=False)
plt.show()

# %%
# The mean of each cluster is a digit again. Below it: the share of its rows that are this
# digit.

fig, axes = plt.subplots(1, 10, figsize=(9, 1.7), layout="constrained")
for digit, axis in enumerate(axes):
    inside = clusters.labels_ == digit
    axis.imshow(X[inside].mean(axis=0).reshape(8, 8), cmap="gray_r")
    axis.set_title(digit)
    axis.set_xlabel(f"{np.mean(truth[inside] == digit):.0%}\nright", fontsize=8)
    axis.set_xticks([])
    axis.set_yticks([])
plt.show()

# %%
# Read on: :doc:`/cluster` says what is minimised, and what to do if classes differ in size.
