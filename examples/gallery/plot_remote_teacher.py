"""
A teacher that never leaves its site
====================================

A laboratory has a good model of two kinds of wine and may not give it away. It can answer
questions over the network. Your own model knows the third kind, and one of theirs. You should
see that the remote model is a teacher like any other: rows go out, probabilities come back, and
the unified model knows all three wines. In this example the server runs on your machine, on a
free port, for as long as the example does.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from consilience import SoftLabelClassifier, Unifier, as_teacher
from consilience.students.server import ModelServer, ServedModel

X, codes = load_wine(return_X_y=True)
order = np.random.default_rng(0).permutation(len(X))
X, y = X[order], np.array(["barolo", "grignolino", "barbera"])[codes[order]]
laboratory, home, unlabelled = slice(0, 50), slice(50, 100), slice(100, None)

# %%
# At the laboratory: train, save, serve. ``consilience serve model.onnx`` does the same on the
# command line, and Triton, KServe or MLServer do it for real traffic.

rows = np.isin(y[laboratory], ["barolo", "grignolino"])
secret = SoftLabelClassifier(make_pipeline(StandardScaler(), LogisticRegression()))
secret.fit(X[laboratory][rows], y[laboratory][rows])
server = ModelServer(ServedModel(secret.save(tempfile.mkdtemp() + "/wines.onnx"))).start()

# %%
# At home: the address is the teacher.

remote = as_teacher(server.url)
print(remote.classes.tolist(), "at a distance")
rows = np.isin(y[home], ["barbera", "grignolino"])
own = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[home][rows], y[home][rows])
unified = Unifier({"laboratory": remote, "own": own}, "logistic", random_state=0).fit(X[unlabelled])

# %%
# What each of them says about the wines that you have, which nobody had labelled. Wrong answers
# have a cross.

logits = remote.predict_logits(X[unlabelled])
server.shutdown()
server.server_close()
said = {
    "laboratory (remote)": remote.classes[logits.argmax(axis=1)],
    "own model": own.predict(X[unlabelled]),
    "unified": unified.predict(X[unlabelled]),
}
truth = y[unlabelled]
accuracy = {name: float(np.mean(answer == truth)) for name, answer in said.items()}
place = PCA(2).fit_transform(StandardScaler().fit_transform(X[unlabelled]))
colours = {"barolo": "#0072B2", "grignolino": "#E69F00", "barbera": "#CC79A7"}
markers = {"barolo": "o", "grignolino": "s", "barbera": "^"}
fig, axes = plt.subplots(1, 3, figsize=(10, 3.9), layout="constrained", sharex=True, sharey=True)
for axis, (name, answer) in zip(axes, said.items(), strict=True):
    for wine, colour in colours.items():
        here = answer == wine
        axis.scatter(
            *place[here].T, color=colour, marker=markers[wine], s=40, label=f'says "{wine}"'
        )
    wrong = answer != truth
    axis.scatter(*place[wrong].T, color="black", marker="x", s=45, label="wrong")
    axis.set_title(f"{name}: {accuracy[name]:.0%} right")
    axis.set_xlabel("first principal component")
axes[0].set_ylabel("second principal component")
handles, labels = axes[-1].get_legend_handles_labels()
fig.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
plt.show()

# %%
# Read on: :doc:`/remote` has tokens, time-outs, what happens when a server fails, and the
# command line.
