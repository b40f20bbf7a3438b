"""How Sphinx builds the site: `make docs`. It needs no network, and the pages load nothing from elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent)]  # our extensions; benchmarks, which figures come from

from consilience import __version__  # noqa: E402

project = "consilience"
author = "the consilience developers"
release = version = __version__
html_title = "consilience"
html_copyright = ""
html_show_copyright = False
html_show_sphinx = False

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "commands",
    "mathml",
    "names",
    "repository_links",
]
exclude_patterns = ["_ext"]
templates_path = ["_templates"]
nitpicky = True

# pages in Markdown
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 4  # [text](page.md#a-heading), as code hosts do

# the reference, from docstrings
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc states the types
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"  # types are prose: only the names below, and those numpydoc knows, become links
numpydoc_xref_aliases = {
    "bool": ":class:`python:bool`",
    "callable": ":func:`callable <python:callable>`",
    "array": ":class:`array <numpy.ndarray>`",
    "arrays": ":class:`arrays <numpy.ndarray>`",
    "mapping": ":class:`mapping <collections.abc.Mapping>`",
    "sequence": ":class:`sequence <collections.abc.Sequence>`",
    "tensor": ":class:`tensor <torch.Tensor>`",
    "torch.nn.Module": ":class:`torch.nn.Module`",
    "torch.Generator": ":class:`torch.Generator`",
    "Path": ":class:`~pathlib.Path`",
    "Teacher": ":class:`Teacher <consilience.Teacher>`",
    "LabelSpace": ":class:`LabelSpace <consilience.LabelSpace>`",
    "Ranking": ":class:`Ranking <consilience.rank.Ranking>`",
    "ScoreStore": ":class:`ScoreStore <consilience.scoring.store.ScoreStore>`",
    "Network": ":class:`Network <consilience.students.Network>`",
    "iterable": "iterable",
    "generator": "generator",
    "array-like": "array-like",
    "scalar": "scalar",
}
default_role = "name"
add_module_names = False
toc_object_entries_show_parents = "hide"

# the gallery
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "gallery_order.GalleryOrder",
    "show_memory": False,
    "parallel": True,  # as many examples at once as -j says
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "min_reported_time": 10,
    "write_computation_times": False,  # its page loads scripts from elsewhere
    "backreferences_dir": None,
}

# names of other projects: plain lists in the repository, since a build has no network
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", "inventories/python.txt"),
    "numpy": ("https://numpy.org/doc/stable", "inventories/numpy.txt"),
    "scipy": ("https://docs.scipy.org/doc/scipy", "inventories/scipy.txt"),
    "sklearn": ("https://scikit-learn.org/stable", "inventories/sklearn.txt"),
    "torch": ("https://docs.pytorch.org/docs/stable", "inventories/torch.txt"),
}

# how it looks
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": [],
    "footer_end": [],
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
