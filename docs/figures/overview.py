"""The picture of the front page: three classifiers with different classes become one."""

from __future__ import annotations

from docs.figures.canvas import Canvas

COLOURS = {"cold": "blue", "flu": "orange", "asthma": "green", "healthy": "purple"}
TEACHERS = {
    "North: a forest": ("cold", "flu"),
    "South: a network": ("flu", "asthma"),
    "Coast: ONNX file": ("asthma", "healthy"),
}


def draw() -> str:
    """Return the SVG."""
    canvas = Canvas(
        760,
        402,
        "Three clinics have classifiers that know cold and flu, flu and asthma, asthma and healthy. "
        "With unlabelled rows they become one classifier that knows all four classes.",
    )
    for i, (name, classes) in enumerate(TEACHERS.items()):
        top = 20 + 104 * i
        canvas.box(20, top, 254, 90)
        canvas.text(36, top + 31, name, size=21, bold=True)
        x = 36.0
        for word in classes:
            x = canvas.chip(x, top + 44, word, kind=COLOURS[word])
        canvas.line([(278, top + 45), (302, top + 45)], kind="axis", width=3)
    canvas.line([(302, 65), (302, 273)], kind="axis", width=3)
    canvas.arrow(302, 169, 478, 169)
    canvas.text(390, 150, "consilience", size=21, anchor="middle", bold=True)
    canvas.text(390, 206, "+ rows without", size=19, kind="dim", anchor="middle")
    canvas.text(390, 230, "labels", size=19, kind="dim", anchor="middle")
    canvas.box(484, 86, 256, 166)
    canvas.text(500, 119, "One classifier", size=21, bold=True)
    x = canvas.chip(500, 136, "cold", kind=COLOURS["cold"])
    canvas.chip(x, 136, "asthma", kind=COLOURS["asthma"])
    x = canvas.chip(500, 184, "flu", kind=COLOURS["flu"])
    canvas.chip(x, 184, "healthy", kind=COLOURS["healthy"])
    canvas.text(380, 366, "No training data leaves a site. Nobody labels anything.", size=22, anchor="middle")
    return canvas.svg()
