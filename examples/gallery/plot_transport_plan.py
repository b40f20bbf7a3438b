"""
From one label set to another: a transport plan
===============================================

A teacher knows six digits by words. You have five classes of your own, of which it knows only
some. What is its opinion worth to you? Optimal transport carries its probabilities over to your
classes: moving probability from one of its classes to one of yours costs their distance in the
teacher's own embedding. You should see where each of its classes goes: to the same digit if you
have it, and to digits that look alike if you do not.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from consilience import as_teacher, cost_matrix, sinkhorn

COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]
X, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
X, digits = X[order] / 16, digits[order]
WORDS = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])

# %%
# The teacher knows 0, 1, 2, 3, 4 and 7. My classes are 3, 4, 7, 8 and 9. It never saw an 8 or a
# 9.

theirs = np.flatnonzero(np.isin(digits[:1000], [0, 1, 2, 3, 4, 7]))
network = MLPClassifier(64, max_iter=1000, random_state=0).fit(X[theirs], WORDS[digits[theirs]])
teacher = as_teacher(network, name="words")
mine = 1000 + np.flatnonzero(np.isin(digits[1000:], [3, 4, 7, 8, 9]))
y = np.array([f"my {digit}" for digit in digits[mine]])
cost = cost_matrix(teacher, X[mine], y)  # (6, 5)
classes = np.unique(y)

# %%
# What the teacher says about my rows, on average, is one side. The shares of my classes are the
# other.

proba = network.predict_proba(X[mine]).mean(axis=0)
shares = np.array([np.mean(y == name) for name in classes])
result = sinkhorn([proba], [shares], cost)
plan = result.plan(0)
print(result)

# %%
# Draw the plan as ribbons. The width of a ribbon is the probability that moves.


def ribbons(axis: plt.Axes, plan: np.ndarray, names: np.ndarray, classes: np.ndarray) -> None:
    """Draw how much of each class on the left goes to each class on the right."""
    gap, x = 0.03, np.linspace(0, 1, 60)
    bend = 3 * x**2 - 2 * x**3  # flat at both ends
    starts = np.cumsum(plan.sum(axis=1)) - plan.sum(axis=1) + gap * np.arange(len(names))
    ends = np.cumsum(plan.sum(axis=0)) - plan.sum(axis=0) + gap * np.arange(len(classes))
    ends += (starts[-1] + plan[-1].sum() - ends[-1] - plan[:, -1].sum()) / 2  # centred
    for name, start, total in zip(names, starts, plan.sum(axis=1), strict=True):
        axis.text(-0.03, start + total / 2, name, ha="right", va="center")
    for name, end, total in zip(classes, ends, plan.sum(axis=0), strict=True):
        axis.text(1.03, end + total / 2, name, ha="left", va="center")
    for (row, column), mass in np.ndenumerate(plan):
        lower = starts[row] + (ends[column] - starts[row]) * bend
        axis.fill_between(x, lower, lower + mass, color=COLOURS[row], alpha=0.75, linewidth=0)
        starts[row] += mass
        ends[column] += mass
    axis.invert_yaxis()
    axis.set_axis_off()


fig, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.6), width_ratios=[2, 3], layout="constrained"
)
image = left.imshow(cost, cmap="cividis_r")
left.set_xticks(range(len(classes)), classes)
left.set_yticks(range(len(teacher.classes)), teacher.classes)
left.set_title("Cost: distance in the teacher's embedding")
fig.colorbar(image, ax=left, shrink=0.8)
ribbons(right, plan, teacher.classes, classes)
right.set_title("Plan: the teacher's classes, and what becomes of them")
plt.show()

# %%
# With a large ``epsilon`` the costs hardly count, and every class goes everywhere. The default
# is half the standard deviation of the costs.

fig, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for axis, factor in zip(axes, (0.2, 1, 5), strict=True):
    epsilon = factor * cost.std() / 2
    ribbons(
        axis, sinkhorn([proba], [shares], cost, epsilon=epsilon).plan(0), teacher.classes, classes
    )
    axis.set_title(f"epsilon = {epsilon:.2f}" + (' ("auto")' if factor == 1 else ""))
plt.show()

# %%
# Read on: :doc:`/transport` has the equations and a torch loss, :doc:`/centres` says where
# costs come from.
