"""
Three language identifiers become one
=====================================

Three small programs tell languages apart by the letters of a text. Each knows three or four
languages of six. You have a pile of sentences and nobody who says which language they are in.
You should see one identifier of all six languages, made from texts without labels, and how it
gets surer as texts get longer.
"""

import matplotlib.pyplot as plt
import numpy as np

from consilience import Unifier
from consilience.students import Ngrams

plt.style.use("tableau-colorblind10")
random = np.random.default_rng(0)

# %%
# The sentences are made of parts: who, does what, where. Every who goes with every verb and
# every place.

PARTS = {
    "Dutch": (
        "de oude leraar|mijn kleine zus|de buurman van hiernaast|"
        "een jonge vrouw|onze beste vriend|de hond van de bakker",
        "leest een lange brief|drinkt een kopje thee|schrijft over de reis|"
        "wacht al een uur|zoekt een goed boek|ziet een schip",
        "in de tuin|bij het raam|achter de kerk|voor het huis|op het strand|tussen de bomen",
    ),
    "English": (
        "the old teacher|my little sister|the man next door|"
        "a young woman|our best friend|the baker's dog",
        "reads a long letter|drinks a cup of tea|writes about the journey|"
        "has waited for an hour|looks for a good book|sees a ship",
        "in the garden|at the window|behind the church|"
        "in front of the house|on the beach|between the trees",
    ),
    "French": (
        "le vieux professeur|ma petite soeur|le voisin d'à côté|"
        "une jeune femme|notre meilleur ami|le chien du boulanger",
        "lit une longue lettre|boit une tasse de thé|écrit sur le voyage|"
        "attend depuis une heure|cherche un bon livre|voit un bateau",
        "dans le jardin|près de la fenêtre|derrière l'église|"
        "devant la maison|sur la plage|entre les arbres",
    ),
    "German": (
        "der alte Lehrer|meine kleine Schwester|der Nachbar von nebenan|"
        "eine junge Frau|unser bester Freund|der Hund des Bäckers",
        "liest einen langen Brief|trinkt eine Tasse Tee|schreibt über die Reise|"
        "wartet seit einer Stunde|sucht ein gutes Buch|sieht ein Schiff",
        "im Garten|am Fenster|hinter der Kirche|vor dem Haus|am Strand|zwischen den Bäumen",
    ),
    "Italian": (
        "il vecchio maestro|la mia sorellina|il vicino di casa|"
        "una giovane donna|il nostro migliore amico|il cane del fornaio",
        "legge una lunga lettera|beve una tazza di tè|scrive del viaggio|"
        "aspetta da un'ora|cerca un buon libro|vede una nave",
        "nel giardino|vicino alla finestra|dietro la chiesa|"
        "davanti alla casa|sulla spiaggia|tra gli alberi",
    ),
    "Spanish": (
        "el viejo maestro|mi hermana pequeña|el vecino de al lado|"
        "una mujer joven|nuestro mejor amigo|el perro del panadero",
        "lee una carta larga|bebe una taza de té|escribe sobre el viaje|"
        "espera desde hace una hora|busca un buen libro|ve un barco",
        "en el jardín|junto a la ventana|detrás de la iglesia|"
        "delante de la casa|en la playa|entre los árboles",
    ),
}
LANGUAGES = list(PARTS)


def sentences(n: int, use: slice) -> tuple[list[str], np.ndarray]:
    """Make n sentences of some of the parts, and name their languages."""
    languages = random.choice(LANGUAGES, n)
    parts = {name: [column.split("|")[use] for column in PARTS[name]] for name in LANGUAGES}
    return [
        " ".join(random.choice(column) for column in parts[name]) for name in languages
    ], languages


# %%
# Each identifier was trained on its own languages. Half of the words in the texts below are new
# to it.

KNOWN = {
    "north": ["Dutch", "English", "German"],
    "west": ["English", "French", "Spanish"],
    "south": ["French", "German", "Italian", "Spanish"],
}
identifiers = {}
for name, known in KNOWN.items():
    texts, languages = sentences(2000, slice(0, 4))
    rows = np.flatnonzero(np.isin(languages, known))
    identifiers[name] = Ngrams(n_buckets=2**14, dim=16, random_state=0).fit(
        [texts[row] for row in rows], languages[rows]
    )

# %%
# Unify them. For texts the student is an ``Ngrams``, too. It learns from pieces of
# sentences, since texts to come may be short.


def cut(text: str, length: int) -> str:
    """Take a piece of a text that begins with a random word."""
    words = text.split()
    return " ".join(words[random.integers(len(words) // 2) :])[:length]


whole, _ = sentences(3000, slice(2, 6))
pieces = [cut(text, random.integers(6, 60)) for text in whole]
unified = Unifier(identifiers, Ngrams(n_buckets=2**14, dim=16), random_state=0).fit(pieces)
print(unified.classes_.tolist())

# %%
# Cut new sentences short. How many characters does a language need?

texts, truth = sentences(1500, slice(2, 6))
lengths = [4, 6, 8, 12, 16, 24, 32, 48]
models = {**identifiers, "unified": unified}
tests = [[cut(text, length) for text in texts] for length in lengths]
accuracy = {
    name: [np.mean(model.predict(test) == truth) for test in tests]
    for name, model in models.items()
}

proverbs = {
    "wie een kuil graaft voor een ander, valt er zelf in": "Dutch",
    "the early bird catches the worm in the morning": "English",
    "petit à petit, l'oiseau fait son nid dans l'arbre": "French",
    "der Apfel fällt nicht weit von seinem Stamm": "German",
    "chi va piano va sano e va lontano con gli amici": "Italian",
    "más vale pájaro en mano que ciento volando": "Spanish",
}
proba = unified.predict_proba(list(proverbs))

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for style, (name, values) in zip(("--", "-.", ":", "o-"), accuracy.items(), strict=True):
    languages = "all six" if name == "unified" else f"knows {len(KNOWN[name])} of 6"
    left.plot(lengths, 100 * np.array(values), style, label=f"{name}, {languages}", linewidth=2)
left.set_xlabel("length of the text (characters)")
left.set_ylabel("new texts right (%)")
left.set_ylim(0, 102)
left.set_title("How long must a text be?")
fig.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False)
image = right.imshow(100 * proba, cmap="cividis", vmin=0, vmax=100, aspect="auto")
right.set_xticks(range(6), LANGUAGES, rotation=30)
right.set_yticks(
    range(6), [text if len(text) < 25 else text[:24] + "…" for text in proverbs], fontsize=8
)
fig.colorbar(image, ax=right, label="probability (%)")
right.set_title("Proverbs that nobody trained on")
plt.show()

# %%
# Read on: :doc:`/text` has the student's options and its file.
# ``examples/language_identification`` does this with seven published programs and 302
# languages.
