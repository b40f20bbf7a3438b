"""
Our loss in your own torch loop
===============================

You train with torch and want to keep your own loop: your optimiser, your batches, your
schedule. Two networks of other people know four of six classes each.
:class:`consilience.nn.CEBPLoss` takes your student's logits and the logits of all teachers side
by side, and has the plain ``(input, target)`` call of any torch loss. You should see that the
student learns a map of all six classes, though no teacher has one, and that the usual way to
distil from several teachers stays behind.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import ListedColormap

from consilience import LabelSpace, nn

plt.style.use("tableau-colorblind10")
torch.manual_seed(0)
torch.set_num_threads(1)  # quickest for small networks
random = np.random.default_rng(0)

# %%
# The data: six arms of a spiral in the plane, so that we can look at what each network has
# learnt.


def spiral(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw n points of six classes."""
    y, radius = random.integers(0, 6, n), np.sqrt(random.uniform(0.05, 1, n))
    angle = y * np.pi / 3 + 1.8 * radius + random.normal(0, 0.16, n)
    points = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    return torch.tensor(points, dtype=torch.float32), torch.tensor(y)


def network(n_classes: int) -> torch.nn.Module:
    """Make a small network."""
    return torch.nn.Sequential(
        torch.nn.Linear(2, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, n_classes),
    )


# %%
# Two teachers, trained by others on classes of their own. They share classes 2 and 3.

known = {"teacher A": [0, 1, 2, 3], "teacher B": [2, 3, 4, 5]}
teachers = {}
for name, classes in known.items():
    X, y = spiral(1500)
    rows = torch.isin(y, torch.tensor(classes))
    X, y = X[rows], y[rows] - classes[0]
    net = teachers[name] = network(4)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-4)
    for _ in range(300):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(X), y).backward()
        optimizer.step()

# %%
# The loop. ``LabelSpace`` knows which column of which teacher is which class. The naive student
# learns from the mean of the teachers' probabilities, with zeros where a teacher does not know
# the class.

space = LabelSpace(known.values())
X_unlabelled, _ = spiral(3000)
X_test, y_test = spiral(2000)
with torch.no_grad():
    said = torch.cat(
        [net(X_unlabelled) for net in teachers.values()], dim=1
    )  # (n, 8): teacher after teacher
padded = torch.zeros(len(said), 6)
padded[:, :4] += 0.5 * torch.softmax(said[:, :4], dim=1)
padded[:, 2:] += 0.5 * torch.softmax(said[:, 4:], dim=1)


def train(loss: torch.nn.Module, target: torch.Tensor) -> tuple[torch.nn.Module, list[float]]:
    """Train a student; return it with its test accuracy after each epoch."""
    student, accuracy = network(space.n_classes), []
    optimizer = torch.optim.Adam(student.parameters(), lr=0.005)
    for _ in range(30):
        for batch in torch.randperm(len(X_unlabelled)).split(128):
            optimizer.zero_grad()
            loss(student(X_unlabelled[batch]), target[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            accuracy.append(float((student(X_test).argmax(dim=1) == y_test).float().mean()))
    return student, accuracy


ours, ours_accuracy = train(nn.CEBPLoss(space, temperature=1.0), said)
naive, naive_accuracy = train(nn.SoftCrossEntropy(), padded)
print(f"ours {ours_accuracy[-1]:.0%}, naive {naive_accuracy[-1]:.0%} of the new points right")

# %%
# Each point of the plane has the colour of the class that a network sees there.

colours = ListedColormap(["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"])
grid = torch.cartesian_prod(torch.linspace(-1.2, 1.2, 200), torch.linspace(-1.2, 1.2, 200))
seen = {
    "teacher A": (teachers["teacher A"], 0),
    "teacher B": (teachers["teacher B"], 2),
    "student": (ours, 0),
}
fig, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
for axis, (name, (net, first)) in zip(axes, seen.items(), strict=True):
    with torch.no_grad():
        answer = net(grid).argmax(dim=1).reshape(200, 200).T.numpy() + first
    axis.imshow(
        answer,
        cmap=colours,
        vmin=0,
        vmax=5,
        alpha=0.45,
        extent=(-1.2, 1.2, -1.2, 1.2),
        origin="lower",
    )
    axis.scatter(*X_test[:600].T.numpy(), c=y_test[:600].numpy(), cmap=colours, vmin=0, vmax=5, s=5)
    axis.set_title(f"{name}: {len(np.unique(answer))} classes")
    axis.set_xticks([])
    axis.set_yticks([])
fig.suptitle("Regions: what the network says. Points: the truth")
plt.show()

# %%
# With the naive targets the same student never settles: where a teacher does not know the
# class, it votes for another one, and its vote counts as much.

fig, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
epochs = np.arange(1, 31)
axis.plot(epochs, 100 * np.array(ours_accuracy), label="nn.CEBPLoss on both teachers")
axis.plot(epochs, 100 * np.array(naive_accuracy), "--", label="mean of zero-padded probabilities")
axis.set_xlabel("epoch")
axis.set_ylabel("new points right (%)")
axis.set_title("All six classes, learnt without a label")
axis.set_ylim(0, 100)
axis.legend(loc="lower right")
plt.show()

# %%
# Read on: :doc:`/torch` has all losses, and students that need no loop.
