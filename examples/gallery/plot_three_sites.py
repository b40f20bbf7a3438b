"""
Three clinics' pipelines become one
===================================

Three clinics have trained a scikit-learn pipeline each, on tables with numbers, words, dates
and gaps. Each clinic knows only some of the diagnoses, and no patient's record may leave its
clinic. You have the three pipelines and a table of patients *without* diagnoses. You should see
one model that knows all five diagnoses, and that is right on more patients than any of the
three.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from consilience import Unifier

plt.style.use("tableau-colorblind10")
random = np.random.default_rng(0)

# %%
# The patients are made up. A column alone does not tell the diagnosis, and one temperature in
# ten is missing.

DIAGNOSES = np.array(["allergy", "asthma", "bronchitis", "cold", "flu"])


def patients(n: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Make up patients and their diagnoses."""
    y = random.choice(DIAGNOSES, n)
    of = {name: y == name for name in DIAGNOSES}
    day = np.where(of["allergy"], random.normal(150, 30, n), random.uniform(0, 365, n))
    table = pd.DataFrame(
        {
            "temperature": 36.8
            + 2.1 * of["flu"]
            + 0.9 * of["bronchitis"]
            + random.normal(0, 0.45, n),
            "peak_flow": 480 - 170 * of["asthma"] - 90 * of["bronchitis"] + random.normal(0, 45, n),
            "cough": np.where(of["bronchitis"], "wet", np.where(of["allergy"], "none", "dry")),
            "runny_nose": random.uniform(size=n) < 0.15 + 0.75 * (of["cold"] | of["allergy"]),
            "seen": pd.Timestamp("2025-01-01")
            + pd.to_timedelta(day.clip(0, 364).astype(int), unit="D"),
        }
    )
    vague = random.uniform(size=n) < 0.35  # the doctor did not listen well
    table.loc[vague, "cough"] = random.choice(["dry", "none", "wet"], vague.sum())
    table.loc[random.uniform(size=n) < 0.1, "temperature"] = np.nan
    return table, y


# %%
# Each clinic uses the kind of model that it likes.


def clinic(model, knows: list[str]):
    """Train a pipeline on a clinic's own patients, with diagnoses that it knows."""
    table, y = patients(600)
    here = np.isin(y, knows)
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["temperature", "peak_flow"]),
        (OneHotEncoder(handle_unknown="ignore"), ["cough", "runny_nose"]),
    )
    return make_pipeline(columns, model).fit(table[here], y[here])


clinics = {
    "north": clinic(LogisticRegression(), ["asthma", "bronchitis", "cold"]),
    "south": clinic(RandomForestClassifier(random_state=0), ["cold", "flu"]),
    "coast": clinic(KNeighborsClassifier(15), ["allergy", "asthma", "flu"]),
}

# %%
# Unify them. The table has no diagnoses, and its columns are given as they are: ``encoding_``
# says what the student made of them.

unlabelled, _ = patients(1500)
unified = Unifier(clinics, random_state=0).fit(unlabelled)
for column, done in unified.encoding_.items():
    print(f"{column}: {done}")

# %%
# How many patients with each diagnosis does each model recognise? The clinics cannot name what
# they never saw.

test, truth = patients(2000)
models = {**clinics, "unified": unified}
predicted = {name: model.predict(test) for name, model in models.items()}
accuracy = {name: np.mean(answer == truth) for name, answer in predicted.items()}
recall = np.array(
    [recall_score(truth, answer, labels=DIAGNOSES, average=None) for answer in predicted.values()]
)
knows = np.array([np.isin(DIAGNOSES, model.classes_) for model in models.values()])

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), width_ratios=[3, 2], layout="constrained")
image = left.imshow(
    np.where(knows, 100 * recall, np.nan), cmap="cividis", vmin=0, vmax=100, aspect="auto"
)
for (row, column), value in np.ndenumerate(100 * recall):
    known = knows[row, column]
    left.text(
        column,
        row,
        f"{value:.0f}" if known else "unknown",
        ha="center",
        va="center",
        color="black" if value > 60 else "white" if known else "grey",
    )
left.set_xticks(range(len(DIAGNOSES)), DIAGNOSES)
left.set_yticks(range(len(models)), models)
left.set_title("Patients of each diagnosis recognised (%)")
right.barh(
    list(models), [100 * value for value in accuracy.values()], color=["C2", "C2", "C2", "C0"]
)
for place, value in enumerate(accuracy.values()):
    right.text(100 * value + 2, place, f"{value:.0%}", va="center")
right.invert_yaxis()
right.set_xlim(0, 100)
right.set_title("All patients (%)")
plt.show()

# %%
# Read on: :doc:`/tables` says how columns are encoded and saved, and :doc:`/unify` how the
# models are combined.
