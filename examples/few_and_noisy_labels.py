"""Learn the same digits with the collision cross-entropy from no labels, few labels, or wrong ones.

1. Without labels, the clusters match the digits for most rows.
2. With a label for one row in twenty, the clusters get names, and more rows are right.
3. With more than half of the labels wrong, a classifier still learns. It need not know their share.

Run: python examples/few_and_noisy_labels.py
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import CollisionClassifier, CollisionClustering, clustering_accuracy

X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
X, y = X[order], y[order]
X_new, y_new = X[1400:], y[1400:]
X, y = X[:1400], y[:1400]

# no labels: clusters are scored by their best one-to-one match with the digits
kmeans = KMeans(10, n_init=10, random_state=0).fit(X)
clusters = CollisionClustering(10, n_init=5, random_state=0).fit(X)
print("Without labels")
print(f"  k-means               {clustering_accuracy(y_new, kmeans.predict(X_new)):.0%} of new rows")
print(f"  collision             {clustering_accuracy(y_new, clusters.predict(X_new)):.0%} of new rows")

# one label in twenty; -1 means no label
few = np.where(np.arange(len(y)) % 20 == 0, y, -1)
known = few >= 0
seeds_only = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X[known], y[known])
named = CollisionClustering(10, random_state=0).fit(X, few)
print(f"With {known.sum()} labels")
print(f"  these rows only       {seeds_only.score(X_new, y_new):.0%} of new rows")
print(f"  and all the others    {np.mean(named.predict(X_new) == y_new):.0%} of new rows")

# seven labels in ten are replaced by random ones
random = np.random.RandomState(0)
noisy = np.where(random.uniform(size=len(y)) < 0.7, random.randint(10, size=len(y)), y)
print(f"With {np.sum(noisy != y)} labels of {len(y)} wrong")
for loss in ("cross-entropy", "collision", "generalised-collision"):
    model = CollisionClassifier(loss, noise=0.7).fit(X, noisy)
    print(f"  {loss:<22}{model.score(X_new, y_new):.0%} of new rows")
blind = CollisionClassifier("generalised-collision", noise="auto", random_state=0).fit(X, noisy)
print(f"  the share unknown     {blind.score(X_new, y_new):.0%} of new rows")
print(f"  the share estimated   {blind.noise_rate_:.0%}, and 70% is true")
