"""Link names in docstrings where they lead somewhere, and document only what is ours.

Docstrings write `name` for parameters, classes and functions alike. A name that the reference or an inventory
knows becomes a link; all others stay code.
"""

from __future__ import annotations

from typing import Any

import sphinx.ext.autosummary
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.domains.python import PyXRefRole
from sphinx.environment import BuildEnvironment


class NameRole(PyXRefRole):
    """A name that may or may not lead somewhere."""

    def process_link(
        self, env: BuildEnvironment, refnode: nodes.Element, has_explicit_title: bool, title: str, target: str
    ) -> tuple[str, str]:
        """Mark the reference, so that `keep_as_code` knows it."""
        refnode["may_be_missing"] = True
        refnode["refdomain"], refnode["reftype"] = "py", "obj"
        return super().process_link(env, refnode, has_explicit_title, title, target)


def keep_as_code(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Element
) -> nodes.Element | None:
    """Show a name that leads nowhere as code, without a warning."""
    return shown if node.get("may_be_missing") else None


def is_foreign(app: Sphinx, kind: str, name: str, member: object, skip: bool, options: Any) -> bool | None:
    """Skip methods that a base of another library defines: they are in its own reference."""
    member = getattr(member, "fget", None) or getattr(member, "func", None) or member
    module = getattr(member, "__module__", None) or ""
    if kind == "class" and callable(member) and not module.startswith("consilience"):
        return True
    return None


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the role and the filter."""
    app.add_role("name", NameRole())
    # a summary does not end here
    sphinx.ext.autosummary.WELL_KNOWN_ABBREVIATIONS += ("eq.", "Sec.", "Fig.", "Prop.")
    app.connect("missing-reference", keep_as_code, priority=900)  # after intersphinx
    app.connect("autodoc-skip-member", is_foreign)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
