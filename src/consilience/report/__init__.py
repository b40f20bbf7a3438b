"""One page to show: blocks of plain data, drawn as HTML with inline SVG into one file.

A verb gathers its data with `blocks`, as plain dicts that are ready for JSON. `page` writes them, `drawing`
makes the SVG. This room knows no estimator.
"""
