"""
Learn from labels that are often wrong
======================================

Somebody labelled your rows in a hurry, and many labels are wrong. You do not know how many.
:class:`consilience.CollisionClassifier` with ``noise="auto"`` estimates the share of
random labels from the labels themselves, and learns in spite of them. You should see that it
stays ahead of a logistic regression as the noise grows, and that its estimate of the noise is
close to the truth.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import CollisionClassifier

plt.style.use("tableau-colorblind10")
random = np.random.default_rng(0)
X, y = load_digits(return_X_y=True)
order = random.permutation(len(y))
X, y = X[order], y[order]
X, y, X_test, y_test = X[:1200], y[:1200], X[1200:], y[1200:]

# %%
# A share of the labels is drawn anew, at random. (One in ten of these happens to be right
# again.) Test labels are clean.

rates = [0.0, 0.2, 0.4, 0.6, 0.8]
plain, robust, estimated = [], [], []
for rate in rates:
    noisy = np.where(random.uniform(size=len(y)) < rate, random.integers(10, size=len(y)), y)
    logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    collision = CollisionClassifier("generalised-collision", noise="auto", random_state=0)
    logistic.fit(X, noisy)
    collision.fit(X, noisy)
    plain.append(logistic.score(X_test, y_test))
    robust.append(collision.score(X_test, y_test))
    estimated.append(collision.noise_rate_)
    print(f"{rate:.0%} random labels: logistic {plain[-1]:.0%}, collision {robust[-1]:.0%} right")

# %%
# The two models are equally large: both are linear.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
per_cent = 100 * np.array(rates)
left.plot(per_cent, 100 * np.array(robust), "o-", label='CollisionClassifier, noise="auto"')
left.plot(per_cent, 100 * np.array(plain), "s--", label="LogisticRegression")
left.set_xlabel("labels drawn at random (%)")
left.set_ylabel("new rows right (%)")
left.set_ylim(0, 100)
left.set_title("Accuracy on clean test labels")
left.legend(loc="lower left")
right.plot([0, 100], [0, 100], color="grey", linestyle=":", label="the truth")
right.plot(per_cent, 100 * np.array(estimated), "o", markersize=9, label="noise_rate_")
right.set_xlabel("labels drawn at random (%)")
right.set_ylabel("estimate, from the noisy labels alone (%)")
right.set_title("How many labels are wrong?")
right.set_aspect("equal")
right.legend(loc="upper left")
plt.show()

# %%
# Which rows would you look at first? Those whose label the model finds least probable. These
# are the six most suspicious of the last fit, with the label that somebody gave them.

classes = list(collision.classes_)
proba = collision.predict_proba(X)
suspicious = np.argsort(proba[np.arange(len(X)), [classes.index(label) for label in noisy]])[:6]
fig, axes = plt.subplots(1, 6, figsize=(9, 2), layout="constrained")
for axis, row in zip(axes, suspicious, strict=True):
    axis.imshow(X[row].reshape(8, 8), cmap="gray_r")
    axis.set_title(f'labelled "{noisy[row]}"', fontsize=10)
    axis.set_xlabel(f"model: {collision.predict(X[[row]])[0]}")
    axis.set_xticks([])
    axis.set_yticks([])
plt.show()

# %%
# Read on: :doc:`/collision` has the loss, other kinds of noise, and where the estimate fails.
