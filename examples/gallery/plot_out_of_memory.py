"""
More rows than memory
=====================

The rows that teachers score and the student learns from need not fit in memory. Give the folder
they lie in, and a budget: ``Unifier(..., memory="16MB")``. Rows are then read block by block,
what teachers said lies in temporary files, and the student learns by passes over the rows. You
should see that memory grows with the number of rows if they are in an array, that it hardly
grows if they are in a folder, and that both ways lead to the same model.
"""

import tempfile
import tracemalloc
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from consilience import Run, Unifier, methods

random = np.random.default_rng(0)
plt.style.use("tableau-colorblind10")

# %%
# Eight classes in thirty columns. Two teachers know five classes each.

centres = random.normal(0, 6, (8, 30))


def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw n rows and their classes."""
    y = random.integers(0, 8, n)
    return (centres[y] + random.normal(0, 7, (n, 30))).astype(np.float32), y


X, y = draw(2000)
teachers = [LogisticRegression(max_iter=500).fit(X[rows], y[rows]) for rows in (y < 5, y > 2)]

# %%
# Write the rows to files of 20,000, here ``.npy``. Your files may also be ``.parquet`` or
# ``.csv``.


def write(folder: str, n_files: int) -> Path:
    """Put unlabelled rows into a folder."""
    for part in range(n_files):
        np.save(f"{folder}/part{part:02}.npy", draw(20_000)[0])
    return Path(folder)


# %%
# The two ways. ``n_neighbors`` compares all rows with each other, so it is off in both.


def at_once(folder: Path) -> Unifier:
    """Read all rows, then unify the teachers on them."""
    rows = np.concatenate([np.load(path) for path in sorted(folder.iterdir())])
    return Unifier(teachers, "logistic", random_state=0, method=methods.Auto(n_neighbors=0)).fit(
        rows
    )


def by_blocks(folder: Path) -> Unifier:
    """Give the folder and a budget."""
    return Unifier(
        teachers,
        "logistic",
        random_state=0,
        method=methods.Auto(n_neighbors=0),
        run=Run(memory="16MB"),
    ).fit(folder)


# %%
# Measure the most bytes that Python and numpy hold at any moment of the work.


def peak(work, folder: Path) -> tuple[Unifier, float]:
    """Return the unified model and the peak of memory, in MB."""
    tracemalloc.start()
    model = work(folder)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return model, most / 1e6


with tempfile.TemporaryDirectory() as name:
    at_once(write(name, 1))  # the first call compiles, which is not what we measure
n_files = [2, 5, 10]
peaks = {at_once: [], by_blocks: []}
for count in n_files:
    models = {}
    with tempfile.TemporaryDirectory() as name:
        folder = write(name, count)
        for work in peaks:
            models[work], most = peak(work, folder)
            peaks[work].append(most)
            print(f"{20_000 * count:,} rows, {work.__name__}: {most:.0f} MB")
X_test, y_test = draw(5000)
said = [model.predict(X_test) for model in models.values()]
agreement = float(np.mean(said[0] == said[1]))
print(f"The two models agree on {agreement:.1%} of {len(y_test)} new rows.")

# %%
# The dotted line is the size of the rows themselves.

fig, axis = plt.subplots(figsize=(7, 4), layout="constrained")
thousands = 20 * np.array(n_files)
axis.plot(thousands, peaks[at_once], "s--", label="all rows in an array")
axis.plot(thousands, peaks[by_blocks], "o-", label='a folder, memory="16MB"')
axis.plot(thousands, 1000 * thousands * X[0].nbytes / 1e6, ":", label="the rows themselves")
axis.set_xlabel("rows (thousands)")
axis.set_ylabel("peak memory (MB)")
axis.set_ylim(0)
axis.set_title("Unify without holding the rows")
axis.legend(loc="upper left")
plt.show()

# %%
# So small a budget is exceeded: the default method ranks each row among 65,536 random ones, and
# their scores stay in memory. That share does not grow with the number of rows.
#
# Read on: :doc:`/large-data` says what streams and what does not, and how a run that was
# stopped goes on.
