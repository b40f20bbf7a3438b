"""
ONNX in, ONNX out, and into the browser
=======================================

Two teams send a model each, as an ONNX file. You unify them, and the result is an ONNX file
again. It runs without this library wherever onnxruntime runs: in Python, in C++, on a phone, in
a web page. You should see that the file gives the same probabilities as the model in memory,
and the few lines of JavaScript that run it in a browser.
"""

import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from consilience import Unifier

plt.style.use("tableau-colorblind10")
X, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(y))
X, y = (X[order] / 16).astype(np.float32), y[order]
theirs, unlabelled, test = slice(0, 600), slice(600, 1200), slice(1200, None)
folder = Path(tempfile.mkdtemp())

# %%
# **In.** Each team exports its model with its own tools, here skl2onnx. Class names are inside
# the file.


def send(name: str, model, classes: range) -> Path:
    """Train a model on some digits and write it to a file."""
    rows = np.isin(y[theirs], classes)
    model.fit(X[theirs][rows], y[theirs][rows])
    path = folder / f"{name}.onnx"
    path.write_bytes(to_onnx(model, X[:1], options={"zipmap": False}).SerializeToString())
    return path


files = [
    send("low", LogisticRegression(max_iter=1000), range(7)),
    send("high", RandomForestClassifier(50, random_state=0), range(4, 10)),
]

# %%
# **Out.** Paths are teachers like any other. ``save`` writes the model and, next to it, a card
# that says how it was made.

unified = Unifier(files, "logistic", random_state=0).fit(X[unlabelled])
path = unified.save(folder / "unified.onnx")
for file in sorted(folder.iterdir()):
    print(f"{file.name}: {file.stat().st_size / 1000:.1f} kB")

# %%
# From here on nothing of this library is used. The names of the classes are in the metadata of
# the file.

session = onnxruntime.InferenceSession(path)
probabilities, label = session.run(
    ["probabilities", "label"], {session.get_inputs()[0].name: X[test]}
)
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
accuracy = float(np.mean(label == y[test]))
difference = float(np.abs(probabilities - unified.predict_proba(X[test])).max())
print(f"{accuracy:.0%} of {len(label)} new rows right")
print(f"off by {difference:.0e} at most from the model in memory")

# %%
# **In the browser.** This page has a grid of 8 x 8 squares. Paint a digit with the mouse, and
# the model reads it on the visitor's own machine: nothing is sent to a server.

PAGE = """<!doctype html>
<meta charset="utf-8">
<title>Paint a digit</title>
<script src="dist/ort.wasm.min.js"></script>
<style>td { width: 2em; height: 2em; border: 1px solid gray; background: white }</style>
<table></table>
<p>This looks like a <output>...</output></p>
<script>
  const pixels = new Float32Array(64);
  const opened = ort.InferenceSession.create("unified.onnx");

  async function read() {
    const session = await opened;
    const rows = new ort.Tensor("float32", pixels, [1, 64]);
    const { label, probabilities } = await session.run({ X: rows });
    document.querySelector("output").value = label.data[0];
    return Array.from(probabilities.data);
  }

  const table = document.querySelector("table");
  for (let i = 0; i < 64; i++) {
    if (i % 8 === 0) table.insertRow();
    const cell = table.rows[table.rows.length - 1].insertCell();
    cell.onpointerover = cell.onpointerdown = (event) => {
      if (!event.buttons) return;  // the mouse only passes by
      pixels[i] = 1;
      cell.style.background = "black";
      read();
    };
  }
</script>
"""
written = (folder / "index.html").write_text(PAGE, encoding="utf8")

# %%
# Copy the folder ``dist`` of the npm package onnxruntime-web beside it, run ``python -m
# http.server`` there, and open the address that it prints.
#
# These are the probabilities of six new rows. The highest bar is the answer; a ring marks the
# truth.

fig, axes = plt.subplots(2, 6, figsize=(9, 3.4), layout="constrained", height_ratios=[3, 2])
for (image, bars), row in zip(axes.T, range(6), strict=True):
    image.imshow(X[test][row].reshape(8, 8), cmap="gray_r")
    image.set_title(f"read as {label[row]}")
    image.set_axis_off()
    bars.bar(classes, 100 * probabilities[row], color="C0")
    bars.plot(
        y[test][row],
        100 * probabilities[row, y[test][row]],
        "o",
        markersize=9,
        mfc="none",
        mec="C1",
        mew=2,
    )
    bars.set_ylim(0, 110)
    bars.set_xticks(classes, classes, fontsize=7)
    bars.set_yticks([0, 50, 100], ["0", "50", "100 %"] if row == 0 else [])
fig.suptitle("What the file says, without this library")
plt.show()

# %%
# Read on: :doc:`/serve` has programs for mixed tables, in Python and JavaScript, and
# :doc:`/files` says what is safe to open.
