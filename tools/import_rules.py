"""An import rule that reads file names: a module is pure unless its name says that it touches the world.

import-linter's own wildcards replace whole parts of a name only, so ``kafka_*`` needs a contract type of our own.
``.importlinter`` registers it as ``pure_unless_named``.
"""

from __future__ import annotations

from fnmatch import fnmatch
from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application import contract_utils
from importlinter.application.contract_utils import AlertLevel


class PureUnlessNamed(Contract):
    """Modules whose last name part matches no worldly pattern import nothing that reaches outside the process.

    Forbidden to them are the listed libraries and, within the same packages, every module with a worldly name. Only
    direct imports count: what a module imports is checked by its own name.
    """

    type_name = "pure_unless_named"
    packages = fields.ListField(subfield=fields.StringField())
    worldly_names = fields.ListField(subfield=fields.StringField())
    forbidden_modules = fields.ListField(subfield=fields.StringField())
    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)
    unmatched_ignore_imports_alerting = fields.EnumField(AlertLevel, default=AlertLevel.ERROR)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002  the base class passes it
        """Find the imports that break the rule."""
        warnings = contract_utils.remove_ignored_imports(
            graph=graph,
            ignore_imports=self.ignore_imports,  # type: ignore[arg-type]  # fields become values when a contract is made
            unmatched_alerting=self.unmatched_ignore_imports_alerting,  # type: ignore[arg-type]
        )
        packages = cast("list[str]", self.packages)
        inside = {module for package in packages for module in {package, *graph.find_descendants(package)}}
        broken = [
            (module, imported)
            for module in sorted(inside)
            if not self._is_worldly(module)
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if self._is_forbidden(imported, inside)
        ]
        return ContractCheck(kept=not broken, warnings=warnings, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line for each import that breaks the rule."""
        broken: list[tuple[str, str]] = check.metadata["broken"]
        for module, imported in broken:
            output.print_error(f"{module} is pure by its name and imports {imported}")

    def _is_worldly(self, module: str) -> bool:
        return any(fnmatch(module.rpartition(".")[2], name) for name in cast("list[str]", self.worldly_names))

    def _is_forbidden(self, imported: str, inside: set[str]) -> bool:
        library = imported.partition(".")[0]
        return library in cast("list[str]", self.forbidden_modules) or (
            imported in inside and self._is_worldly(imported)
        )
